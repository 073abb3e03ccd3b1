"""Task queues on rmq: transports and backends of other projects.

Only programs of users import these modules; no other part of rmq does. Each module
needs the library of its name.

| module | content |
|---|---|
| `celery`, `kombu/` | Celery: schemes, transport |
| `results` | results and chords of Celery |
| `recalls` | tasks that leave the timer before their time |
| `django`, `django_app/` | Django: backend, worker, `manage.py rmqworker` |
| `dramatiq` | dramatiq: broker |
| `taskiq` | taskiq: broker, schedules with a time |
| `task_link` | the blocking connection that all of them use |
| `topics`, `names`, `result_log` | topics, their names, results by key |
| `sources`, `settling` | POPs and pulls; acks and renewals |
| `chords` | the parts of a chord in the log |
| `forks` | locks that a child makes new |
| `keeper` | a thread that renews while its owner is busy |
| `queue_reader` | messages for workers without kombu |
"""
