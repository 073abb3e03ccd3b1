"""`rmq admin`: looks at running brokers and name servers, and changes them."""
