# Varnish in front of Stentor: nothing is cached. Load this file with varnishd -f and change the address.
# tests/clients/all/more-proxies.test.mjs runs Varnish with this file.
vcl 4.1;

backend stentor {
    .host = "127.0.0.1";
    .port = "8000";
    # Silence is at most 25 s (heartbeat.interval) plus 20 s (heartbeat.timeout). For WebSockets: varnishd -p pipe_timeout=75
    .first_byte_timeout = 75s;
    .between_bytes_timeout = 75s;
}

sub vcl_recv {
    # Varnish appends the client's address to X-Forwarded-For. A client could state these itself.
    unset req.http.X-Forwarded-Host;
    unset req.http.X-Forwarded-Proto;
    unset req.http.Forwarded;
    if (req.http.Upgrade ~ "(?i)websocket") {
        return (pipe);
    }
    # Documents differ by user, and streams never end.
    return (pass);
}

sub vcl_pipe {
    # Varnish removes both by default.
    set bereq.http.Upgrade = req.http.Upgrade;
    set bereq.http.Connection = req.http.Connection;
}

sub vcl_backend_response {
    # Streams at once.
    set beresp.do_stream = true;
    set beresp.do_gzip = false;
}
