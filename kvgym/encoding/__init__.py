"""Decisions become arrays of bounded features, for training, simulation, live use and compiled policies alike."""
