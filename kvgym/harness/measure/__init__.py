"""Numbers of finished runs: metrics and paired statistics, tails per class, bounds, saturation, flags."""
