"""Saved models play as controllers (`model`); the other modules are what it takes to train them.

`set_policy` is a network for any number of workers, `work_rows` a second view of the workers for it (also as an
environment wrapper, `work_observation`), `group_buffer` a rollout buffer with a baseline from twin episodes.
`scripts/train_sb3.py` puts them together. `set_policy` and `group_buffer` are made of torch and stable-baselines3 and
are imported only where a model is trained or loaded.
"""
