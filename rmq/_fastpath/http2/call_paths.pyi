class CallPath:
    code: int
    served: int
    declined: int
