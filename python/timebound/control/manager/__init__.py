"""The service `timebound manager`: the Rust intermediary in front of a broker, the table's store, and the site's rules.

`shape` and `configuration` read its file; `policy` (pure) says who may ask for what; `desk` (pure) turns events of clients into rows and rows of
the controller into verdicts; `service` has the threads and sockets around them, with `announce`, `audit`, `metrics` and `web`.
"""
