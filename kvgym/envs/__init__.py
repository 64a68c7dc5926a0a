"""In Gymnasium environments one step is one decision (`routing`); rewards are sums of named terms (`rewards`)."""
