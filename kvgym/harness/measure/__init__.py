"""Finished runs become numbers: metrics and paired statistics, tails per class, bounds, saturation, flags."""
