"""Training scripts share configurations, environments, validation and the comparison at the end."""
