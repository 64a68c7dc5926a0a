"""`kvgym route`: an OpenAI-compatible reverse proxy in which any routing controller chooses the worker.

A request comes in through `app`, `reading` turns its body into token ids, `seat` makes the Decision that a simulated or
live run would have made and asks the controller, `relay` sends the body on and passes the answer back byte for byte.
`workers` knows who is up, `telemetry` counts, `request_log` writes what other commands read, `service` starts and stops
it all.
"""
