"""What sources build workloads from: arrival times, sessions, id chains, regions, and what is kept between episodes."""
