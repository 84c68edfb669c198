package main

// usage is what -h prints: nats-server's flags, which all keep their meaning, and the gateway's own.
const usage = `
Usage: ehdb-gateway [options]

Server Options:
    -a, --addr, --net <host>         Listen for clients on this address (default: 0.0.0.0)
    -p, --port <port>                Listen for clients on this port (default: 4222, -1: any free one)
    -n, --name
        --server_name <server_name>  Server name (default: its id)
    -P, --pid <file>                 Write the process id to this file
    -m, --http_port <port>           Serve monitoring and /metrics over http on this port
    -ms,--https_port <port>          Serve monitoring and /metrics over https on this port (needs a certificate)
    -c, --config <file>              Configuration file (nats-server's format and keys)
    -t                               Check the configuration file and exit
    -sl,--signal <signal>[=<pid>]    Signal a running ehdb-gateway (ldm, stop, quit, term, reopen, reload)
                                     <pid> is a process id or the path of a pid file
        --client_advertise <string>  Address that clients are told to connect to
        --ports_file_dir <dir>       Write the ports listened on to <dir>/<executable>_<pid>.ports

Logging Options:
    -l, --log <file>                 Log to this file instead of standard error
    -T, --logtime                    Time in log lines (default: true)
        --logtime_utc                Time in UTC (default: false)
    -s, --syslog                     Log to syslog
    -r, --remote_syslog <addr>       Log to a syslog server (udp://localhost:514)
    -D, --debug                      Log debug lines
    -V, --trace                      Log the protocol
    -VV                              Log the protocol, the system account's too
    -DV                              Log debug lines and the protocol
    -DVV                             Log debug lines and the protocol, the system account's too
        --log_size_limit <limit>     Rotate the log file at this size in bytes
        --max_traced_msg_len <len>   Log so many bytes of each traced message (default: all)

JetStream Options:
    -js, --jetstream                 Serve JetStream
    -sd, --store_dir <dir>           Keep streams below this directory (in <dir>/ehdb)
        --allow_tmp_store            Allow a store directory below the system's temporary directory

Bus Options:
        --bus <mode>                 Which bus serves clients: ehdb, this server's own streams, or nats, the NATS
                                     servers upstream (default: nats if there are any; environment: EHDB_BUS)
        --upstream <url-1, url-2>    The NATS servers upstream (environment: EHDB_UPSTREAM)

Authorization Options:
        --user <user>                User required for connections
        --pass <password>            Password required for connections
        --auth <token>               Authorization token required for connections

TLS Options:
        --tls                        Enable TLS, do not verify clients (default: false)
        --tlscert <file>             Server certificate file
        --tlskey <file>              Private key of the server certificate
        --tlsverify                  Enable TLS, verify client certificates
        --tlscacert <file>           Certificates of the CAs that clients' certificates are verified against

Cluster Options (understood; a start with routes to other servers is refused until there is replication):
        --routes <rurl-1, rurl-2>, --cluster <cluster-url>, --cluster_name <string>, --no_advertise <bool>,
        --cluster_advertise <string>, --connect_retries <number>, --cluster_listen <url>

Profiling Options:
        --profile <port>             Serve pprof over http on this port

Common Options:
    -h, --help                       Show this message
    -v, --version                    Show version
        --help_tls                   TLS help
`
