"""Pictures show an episode: `frame` says what is to be seen, `text` and `pixels` draw it."""
