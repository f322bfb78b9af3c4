"""The service `timebound controller`: the table's requests in, verdicts and channels out.

| file | what |
|---|---|
| `channels` | the life of a reservation, as a table |
| `desk` | all decisions of the service, without threads, clock or input: events in, orders out |
| `view` | what people see of it, as one JSON document |
| `service` | the thread that owns the desk; store and enforcer around it |
| `configuration` | the file |
| `audit`, `metrics` | who was told what; figures for Prometheus |
| `rest`, `tokens`, `page` | HTTP: for programs, who may, for people |
| `run` | everything together, as the command starts it |
"""
