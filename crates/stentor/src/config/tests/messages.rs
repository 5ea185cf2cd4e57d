//! Tests of the exact texts of all errors and warnings about the configuration.

use super::{ISSUER, file};
use crate::config::Sources;

/// Abbreviations in [`CASES`] and the lines of a file that they stand for.
const SHORTHANDS: [(&str, &str); 5] = [
    ("FEED", "[[feeds]]\nname = \"a\"\nurl = \"http://a\""),
    ("HOOK", "[[hooks]]\nname = \"a\"\nurl = \"http://h\"\non = [\"event\"]"),
    ("ISSUER", ISSUER),
    ("LISTENERS", "[[listeners]]\naddress = \"127.0.0.1:8443\"\n[[listeners]]\naddress = \"[::1]:8443\""),
    (
        "SHARED",
        "[cluster]\nengine = \"redis://127.0.0.1\"\n[socketio]\nnamespaces = [\"/a\"]\n[[cluster.socketio]]",
    ),
];

/// Each case is a line with the lines of `stentor.toml`, environment variables (`$NAME=value`) and flags,
/// separated by ` | `. The indented lines below it are the expected messages, with the number of the line in
/// the file. A case without such lines is accepted without a warning.
const CASES: &str = r##"
# Unknown keys and sections.
[server] |  |  | lisen = 5
  4: unknown key "lisen" in [server]; did you mean "listen"?
[server] | quality = 5
  2: unknown key "quality" in [server]
[server] | message_bytes_max = 5
  2: unknown key "message_bytes_max" in [server]; did you mean "message_bytes_max" in [limits]?
server.lisen = 5
  1: unknown key "lisen" in [server]; did you mean "listen"?
listen = "127.0.0.1:80"
  1: unknown key "listen" outside of a section; did you mean "listen" in [server]?
lisen = "127.0.0.1:80"
  1: unknown key "lisen" outside of a section; did you mean "listen" in [server]?
[limit]
  1: unknown section [limit]; did you mean [limits]?
 | [[feed]]
  2: unknown section [feed]; did you mean [[feeds]]?
[whatever]
  1: unknown section [whatever]
FEED | poll_intervall = "1s"
  4: unknown key "poll_intervall" in [[feeds]]; did you mean "poll_interval"?
SHARED | prefx = "a"
  6: unknown key "prefx" in [[cluster.socketio]]; did you mean "prefix"?
$STENTOR_SERVER_LISTN=x
  warning: unknown variable STENTOR_SERVER_LISTN; did you mean STENTOR_SERVER_LISTEN?
# Kubernetes sets it for a service of that name.
$STENTOR_PORT=tcp://10.0.0.1:80

# Brackets.
server = 5
  1: [server] is a section, not a value
[feeds] | name = "a"
  1: write [[feeds]] with two brackets: the section may be repeated
[[server]]
  1: write [server] with one bracket: the section can't be repeated
[cluster.socketio] | prefix = "a"
  1: write [[cluster.socketio]] with two brackets: the section may be repeated
  1: this [[cluster.socketio]] has no url, and there is no Redis in [cluster] engine to use instead

# No TOML.
[server
  1: not TOML: unclosed table, expected `]`
[server] | cores = 1 | cores = 2 | [x
  3: not TOML: duplicate key
  4: not TOML: unclosed table, expected `]`
# The other lines are read.
[server] | lisen = 5 | cores | admin = "0.0.0.0:8001" | log_level = | driver = "uring
  2: unknown key "lisen" in [server]; did you mean "listen"?
  3: not TOML: key with no value, expected `=`
  4: the admin port at 0.0.0.0:8001 can be reached from other machines: set admin_token in [server] (or STENTOR_SERVER_ADMIN_TOKEN)
  5: not TOML: string values must be quoted, expected literal string
  6: not TOML: invalid basic string, expected `"`
[[feeds]] | name = "a" | url = http://a | [[feeds]] | name = "b" | poll_interval = "5"
  3: not TOML: string values must be quoted, expected literal string
  4: this feed has no "url"
  6: poll_interval in [[feeds]]: expected a duration such as "25s", "300ms", "5min" or "1h", found "5"; a unit is missing: "5s"?
[[feeds] | name = "a" | url = "http://a" | pol_interval = "1s"
  1: not TOML: unclosed array table, expected `]`
  4: unknown key "pol_interval" in [[feeds]]; did you mean "poll_interval"?
[origins] | allow = ["a.example", "https://b.example/", | "c.example"] | [server] | cores = "2"
  2: allow in [origins]: expected an origin such as "https://example.com", "https://*.example.com" or "*", found "a.example"; an origin has no path: write "https://b.example", not "https://b.example/"; expected an origin such as "https://example.com", "https://*.example.com" or "*", found "c.example"
  5: cores in [server]: expected a whole number, found "2"; write 2 without quotes
[[feeds]] | name = "a" | url = "http://a" | method = "POST" | body = """ | {} | [server] | cores = "2"
  5: body in [[feeds]]: expected a JSON text: not JSON at byte 3; found """ {} [server]
  8: not TOML: invalid multi-line basic string, expected `"`
[feeds] | name = "A" | pol_interval = "1s"
  1: write [[feeds]] with two brackets: the section may be repeated
  2: name in [[feeds]]: expected 1 to 64 of a-z 0-9 - _, found "A"
  3: unknown key "pol_interval" in [[feeds]]; did you mean "poll_interval"?

# All mistakes at once, in the order of the file.
[server] | lisen = 1 | cores = -1 | [limts] | x = 1 | [[feeds]] | [rooms] | publish = 1
  2: unknown key "lisen" in [server]; did you mean "listen"?
  3: cores in [server]: expected a whole number, not negative and below 2^63, found the number -1
  4: unknown section [limts]; did you mean [limits]?
  6: this feed has no "name"
  6: this feed has no "url"
  8: publish in [rooms]: expected true or false, found the number 1

# Values of another kind, and beyond their range.
[server] | listen = "here"
  2: listen in [server]: expected an address such as "127.0.0.1:8000" or "[::1]:8000", found "here"
[server] | admin = 8001
  2: admin in [server]: expected an address such as "127.0.0.1:8000" or "[::1]:8000", found the number 8001
[server] | cores = "many"
  2: cores in [server]: expected a whole number, found "many"
[server] | cores = -1
  2: cores in [server]: expected a whole number, not negative and below 2^63, found the number -1
[server] | cores = 5000
  2: cores in [server]: 5000 is out of range: 0 to 256
--cores 9999
  --cores: 9999 is out of range: 0 to 256
$STENTOR_SERVER_CORES=9999
  STENTOR_SERVER_CORES: 9999 is out of range: 0 to 256
[server] | driver = "uring"
  2: driver in [server]: expected "auto" or "io_uring" or "epoll", found "uring"
[server] | admin_token = "short"
  2: admin_token in [server]: a token needs at least 16 printable ASCII characters without spaces
[server] | hosts = ["http://a.example"]
  2: hosts in [server]: "http://a.example" is not a host: write a name or an address, such as "example.com", "example.com:8443", "192.0.2.1" or "[::1]"
[server] | base_path = "/rt"
[server] | base_path = "/a/b.c-d_e~1"
[server] | base_path = "rt"
  2: base_path in [server]: expected a path such as "/rt", without "/" at its end, of letters, digits and -._~, at most 256 bytes; found "rt"
[server] | base_path = "/rt/"
  2: base_path in [server]: expected a path such as "/rt", without "/" at its end, of letters, digits and -._~, at most 256 bytes; found "/rt/"
[server] | base_path = "/a/../b"
  2: base_path in [server]: expected a path such as "/rt", without "/" at its end, of letters, digits and -._~, at most 256 bytes; found "/a/../b"
[server] | base_path = "/rt; Domain=x"
  2: base_path in [server]: expected a path such as "/rt", without "/" at its end, of letters, digits and -._~, at most 256 bytes; found "/rt; Domain=x"
[proxies] | header = "X_Real_IP"
  2: header in [proxies]: expected "x-forwarded-for", "forwarded" or the name of a header (letters, digits and "-"), found "X_Real_IP"
[rooms] | publish = "yes"
  2: publish in [rooms]: expected true or false, found "yes"
$STENTOR_ROOMS_PUBLISH=true
$STENTOR_ROOMS_PUBLISH=1
  STENTOR_ROOMS_PUBLISH: expected true or false, found "1"
[limits] | message_bytes_max = "1 parsec"
  2: message_bytes_max in [limits]: expected a size such as "1MB", "64KiB" or 65536, found "1 parsec"
[limits] | message_bytes_max = 0
  2: message_bytes_max in [limits]: 0 is out of range: 1 to "1GiB"
$STENTOR_LIMITS_MESSAGE_BYTES_MAX=2MB
$STENTOR_LIMITS_MESSAGE_BYTES_MAX=2000000
# The parser's table holds 128.
[limits] | headers_max = 128
[limits] | headers_max = 129
  2: headers_max in [limits]: 129 is out of range: 8 to 128
$STENTOR_LIMITS_HEADER_TIMEOUT=10
  STENTOR_LIMITS_HEADER_TIMEOUT: expected a duration such as "25s", "300ms", "5min" or "1h", found "10"; a unit is missing: "10s"?
[heartbeat] | interval = 25
  2: interval in [heartbeat]: expected a duration such as "25s", "300ms", "5min" or "1h", found the number 25; a unit is missing: "25s"?
[heartbeat] | interval = "1ms"
  2: interval in [heartbeat]: "1ms" is out of range: "100ms" to "1h"
[origins] | allow = "https://a.example"
  2: allow in [origins]: expected an array, found "https://a.example"; write ["https://a.example"]
[origins] | allow = ["https://a.example/"]
  2: allow in [origins]: an origin has no path: write "https://a.example", not "https://a.example/"
[origins] | allow = ["a.example"]
  2: allow in [origins]: expected an origin such as "https://example.com", "https://*.example.com" or "*", found "a.example"

# Ports: the admin port needs a token where other machines reach it, and each listener an address of its own.
[server] | admin = "0.0.0.0:8001"
  2: the admin port at 0.0.0.0:8001 can be reached from other machines: set admin_token in [server] (or STENTOR_SERVER_ADMIN_TOKEN)
--admin [::]:1
  --admin: the admin port at [::]:1 can be reached from other machines: set admin_token in [server] (or STENTOR_SERVER_ADMIN_TOKEN)
[server] | admin = "0.0.0.0:8001" | admin_token = "0123456789abcdef"
[server] | admin = "[::1]:8001"
[server] | admin = "127.3.2.1:8001"
$STENTOR_SERVER_ADMIN=127.0.0.1:9
[admin_tls] | certificate = "a.pem"
  2: certificate and key in [admin_tls] need each other: set both; found "a.pem"
[admin_tls] | key = "a.pem"
  2: certificate and key in [admin_tls] need each other: set both; found "a.pem"
[admin_tls] | certificate = "/nowhere" | key = "/nowhere.key"
  2: certificate in [admin_tls]: /nowhere: can't be read: No such file or directory (os error 2); name a file that the server's user can read
  3: key in [admin_tls]: /nowhere.key: can't be read: No such file or directory (os error 2); name a file that the server's user can read
[admin_tls] | certificate = "" | key = ""
[server] | listen = "127.0.0.1:9000" | admin = "127.0.0.1:9000"
  3: listen and admin in [server] can't both use port 9000; found "127.0.0.1:9000"
[server] | listen = "0.0.0.0:8001"
  2: listen and admin in [server] can't both use port 8001; found "0.0.0.0:8001"
[server] | admin = "127.0.0.1:8000"
  2: listen and admin in [server] can't both use port 8000; found "127.0.0.1:8000"
[server] | listen = "127.0.0.2:8001"
[server] | listen = "127.0.0.1:0" | admin = "127.0.0.1:0"
LISTENERS | [[listeners]] | address = "127.0.0.1:8000"
  6: address in [[listeners]]: listen in [server] uses port 8000 already; found "127.0.0.1:8000"
LISTENERS | [[listeners]] | address = "0.0.0.0:8001"
  6: address in [[listeners]]: admin in [server] uses port 8001 already; found "0.0.0.0:8001"
LISTENERS | [[listeners]] | address = "127.0.0.1:8443"
  6: address in [[listeners]]: [[listeners]] number 1 uses port 8443 already; found "127.0.0.1:8443"
[[listeners]]
  1: this listener has no "address"

# Cookies for other sites have to be secure.
[socketio] | cookie = "io" | cookie_same_site = "none"
  3: cookie_same_site = "none" in [socketio] needs cookie_secure = true: browsers refuse the cookie without it
[socketio] | cookie = "io" | cookie_same_site = "none" | cookie_secure = true

# Feeds.
FEED
FEED | prefix = "x/y"
FEED | prefix = "x/"
FEED | prefix = "x/../y"
  4: prefix in [[feeds]]: the prefix has a segment '.' or '..'; found "x/../y"
FEED | complete_on = ["max-age=0"] | ignore_cache_control = true
  4: complete_on in [[feeds]]: ignore_cache_control must be false, else nothing ends the feed; found ["max-age=0"]
FEED | max_age_min = "1min"
FEED | max_age_min = "1min" | max_age_max = "30s"
  5: max_age_max in [[feeds]]: "30s" is less than "1min", max_age_min
FEED | max_age_max = "500ms"
  4: max_age_max in [[feeds]]: "500ms" is less than "1s", max_age_min
FEED | max_age_min = "2min" | [feeds_limits] | max_age_max = "1min"
  4: max_age_min in [[feeds]]: "2min" is more than "1min", max_age_max in [feeds_limits]
FEED | connection_age_max = "0s"
  4: connection_age_max in [[feeds]]: "0ms" is out of range: "1s" to "24h"; found "0s"
[[feeds]] | name = "a" | key = "a/{id}" | url = "http://a" | method = "POST" | body = '{"query":"{ a(id: $id) { b } }","variables":{"id":"{id}"}}'
[[feeds]] | name = "a" | key = "a/{id}" | url = "http://a" | method = "POST" | body = '{}'
  4: url in [[feeds]]: {id} of the key isn't used in it, nor in body; found "http://a"
[[feeds]] | name = "a" | key = "a/{id}" | url = "http://a/{id}" | method = "POST" | body = '["match-{id}"]'
  6: body in [[feeds]]: {id} stands within a longer string: a placeholder is a whole string, and other braces have a blank behind them; found '["match-{id}"]'
[[feeds]] | name = "a" | key = "a/{id}" | url = "http://a/{id}" | method = "POST" | body = '{"{id}":1}'
  6: body in [[feeds]]: {id} stands in the name of a member: a placeholder is a value
FEED | method = "POST" | body = "query { a }"
  5: body in [[feeds]]: expected a JSON text: not JSON at byte 0; found "query { a }"
FEED | body = "{}"
  4: body in [[feeds]]: it needs method = "POST"; found "{}"
FEED | method = "POST"
  4: method in [[feeds]]: "POST" needs a body, such as body = '{}'
FEED | method = "PUT"
  4: method in [[feeds]]: expected "GET" or "POST", found "PUT"
FEED | accept_encoding = []
FEED | accept_encoding = ["zstd"]
  4: accept_encoding in [[feeds]]: expected "gzip" or "br", found "zstd"
FEED | headers = { Accept-Encoding = "gzip" }
  4: headers in [[feeds]]: the header "accept-encoding" is set by the fetcher itself: use the setting `accept_encoding`
FEED | ignore = ["/generated_at", "/items/*/age"]
FEED | ignore = ["/a", "generated_at"]
  4: ignore in [[feeds]]: expected a JSON pointer, which begins with a slash, such as "/meta/age"; found "generated_at"
FEED | ignore = ["/a~b"]
  4: ignore in [[feeds]]: a ~ in a JSON pointer is written ~0, and a slash in a name ~1: "/a~b"
FEED | ignore = ["/items/item-*"]
  4: ignore in [[feeds]]: a * stands for a whole name or index, between slashes: "/items/item-*"
FEED | ignore = [""]
  4: ignore in [[feeds]]: the document would never change with ""; found [""]
FEED | connect_timeout = "1h" | read_timeout = "0s"
FEED | connect_timeout = "0s"
  4: connect_timeout in [[feeds]]: "0ms" is out of range: "1ms" to "1h"; found "0s"
FEED | read_timeout = "2h"
  4: read_timeout in [[feeds]]: "2h" is out of range: "0ms" to "1h"
FEED | document_bytes_max = "1GiB"
  4: document_bytes_max in [[feeds]]: "1GiB" is more than "256MiB" for all documents in [feeds_limits]
[[feeds]] | name = "A b" | url = "http://a"
  2: name in [[feeds]]: expected 1 to 64 of a-z 0-9 - _, found "A b"
FEED | prefix = "p" | FEED | prefix = "p"
  6: name in [[feeds]]: feed number 1 has the same name
  8: prefix in [[feeds]]: feed number 1 already has the prefix "p"
FEED | [[feeds]] | name = "b" | url = "http://b"
  5: name in [[feeds]]: feed number 1 already has the prefix ""
[[feeds]] | name = "a" | url = "http://a/b/?token=x"
[[feeds]] | name = "a" | url = ""
  3: url in [[feeds]]: this is no URL: ""
[[feeds]] | name = "a" | url = "http://a b"
  3: url in [[feeds]]: this is no URL: "http://a b"
[[feeds]] | name = "a" | url = "ftp://a"
  3: url in [[feeds]]: expected a URL beginning with http:// or https://: "ftp://a"
[[feeds]] | name = "a" | url = "/path"
  3: url in [[feeds]]: expected a URL beginning with http:// or https://: "/path"
[[feeds]] | name = "a" | url = "http://a/#x"
  3: url in [[feeds]]: a URL of an upstream can't have a fragment: "http://a/#x"
# Parts that may be secret aren't shown.
[[feeds]] | name = "a" | url = "http://me:secret@a"
  3: url in [[feeds]]: credentials belong in the headers, not in the URL
[[feeds]] | name = "a" | url = "http:/me:secret@a"
  3: url in [[feeds]]: this is no URL
[[feeds]] | name = "a" | url = "/me:secret@a"
  3: url in [[feeds]]: expected a URL beginning with http:// or https://
[[hooks]] | name = "a" | url = "http:/me:secret@h" | on = ["event"]
  3: url in [[hooks]]: expected a URL beginning with http:// or https://: invalid format
[cluster] | engine = "redis:/:hunter2@redis:6379"
  2: engine in [cluster]: expected a URL such as `redis://127.0.0.1:6379` or `nats://127.0.0.1:4222`
[cluster] | engine = "redis:/redis:6379?password=hunter2"
  2: engine in [cluster]: expected a URL such as `redis://127.0.0.1:6379` or `nats://127.0.0.1:4222`
[cluster] | engine = "redis:hunter2@x://"
  2: engine in [cluster]: expected a URL such as `redis://127.0.0.1:6379` or `nats://127.0.0.1:4222`
[cluster] | engine = "redis:hunter2"
  2: engine in [cluster]: expected a URL such as `redis://127.0.0.1:6379` or `nats://127.0.0.1:4222`
[cluster] | engine = "redis:6379"
  2: engine in [cluster]: expected a URL such as `redis://127.0.0.1:6379` or `nats://127.0.0.1:4222`; found "redis:6379"
$STENTOR_CLUSTER_ENGINE=redis:/:hunter2@redis:6379
  STENTOR_CLUSTER_ENGINE: expected a URL such as `redis://127.0.0.1:6379` or `nats://127.0.0.1:4222`
[[feeds]] | name = "a" | url = "ftp://a/?secret"
  3: url in [[feeds]]: expected a URL beginning with http:// or https://: "ftp://a/?…"
# A feed that is pushed has no URL, and shares the keys with those that are fetched.
# Limits of fetches that exclude each other.
FEED | concurrency_max = 256
FEED | concurrency_max = 300
  warning: 4: concurrency_max in [[feeds]] is 300, but fetches_max in [feeds_limits] is 256 and leaves 256 to this section; set fetches_max to 300
FEED | prefix = "a" | concurrency_max = 200 | [[feeds]] | name = "b" | url = "http://b" | concurrency_max = 5
FEED | prefix = "a" | concurrency_max = 200 | [[feeds]] | name = "b" | url = "http://b" | concurrency_max = 60
  warning: 5: concurrency_max in [[feeds]] is 200, but fetches_max in [feeds_limits] is 256 and leaves 196 to this section; set fetches_max to 260
FEED | prefix = "a" | [[feeds]] | name = "b" | url = "http://b" | [feeds_limits] | fetches_max = 7
  warning: 9: fetches_max in [feeds_limits] is 7, which guarantees each of 2 [[feeds]] only 3 at a time while the others hang; set it to 8
FEED | prefix = "a" | concurrency_max = 3 | [[feeds]] | name = "b" | url = "http://b" | concurrency_max = 3 | [feeds_limits] | fetches_max = 6
FEED | [feeds_limits] | fetches_max = 3
[[feeds]] | name = "p" | push = true | prefix = "live/"
[[feeds]] | name = "p" | push = true | key = "live/{id}"
[[feeds]] | name = "p" | push = true | url = "http://a"
  4: url in [[feeds]]: a feed with push = true has no url; found "http://a"
[[feeds]] | name = "p" | push = true | prefix = "p" | FEED | prefix = "p"
  8: prefix in [[feeds]]: feed number 1 already has the prefix "p"
[[feeds]] | name = "p" | push = false
  1: this feed has no "url"
[[feeds]] | name = "a" | key = "m/{id}/centre" | url = "http://a/match/{id}?full=1"
[[feeds]] | name = "a" | key = "m/{id}" | url = "http://a/"
  4: url in [[feeds]]: {id} of the key isn't used in it; found "http://a/"
[[feeds]] | name = "a" | key = "m/{id}" | url = "http://a/{x}" | prefix = "m"
  3: key in [[feeds]]: a feed has either a prefix or a key, not both; found "m/{id}"
[[feeds]] | name = "a" | key = "m/{id" | url = "gopher://a"
  3: key in [[feeds]]: a { has no }: "m/{id"
  4: url in [[feeds]]: expected a URL beginning with http:// or https://: "gopher://a"
[[feeds]] | name = "a" | key = "m/{id}" | url = "http://a/{id}" | [[feeds]] | name = "b" | key = "m/{x}" | url = "http://a/{x}"
  7: key in [[feeds]]: feed number 1 already has the keys of "m/{x}"
FEED | prefix = "S\u00e3o Paulo/" | keys = "utf8"
FEED | prefix = "a b/"
  4: prefix in [[feeds]]: the prefix has a character at byte 1 that is none of A-Z a-z 0-9 . _ ~ @ : = + , -; keys = "utf8" in [[feeds]] allows others; found "a b/"
FEED | prefix = "a%20b/" | keys = "utf8"
  4: prefix in [[feeds]]: the prefix has a character at byte 1 that no key may have: a control character, '\', or '%' before two hexadecimal digits; found "a%20b/"
FEED | keys = "utf-8"
  4: keys in [[feeds]]: expected "ascii" or "utf8", found "utf-8"
FEED | headers = { "a b" = "x" }
  4: headers in [[feeds]]: "a b" is no name of a header
FEED | headers = { Host = "x" }
  4: headers in [[feeds]]: the header "host" is set by the fetcher itself: use the setting `host`
FEED | headers = { X-Key = "a\r\nb" }
  4: headers in [[feeds]]: the header "x-key" has characters that no header can have
FEED | headers = { X-Key = 5 }
  4: headers in [[feeds]]: the header "x-key" has no text in quotes
FEED | headers = { X-Key = "Bearer ${TOKEN}" } | $OTHER=1
  4: headers in [[feeds]]: the header "x-key" needs the environment variable TOKEN, which is not set
FEED | headers = { X-Key = "Bearer ${TOKEN}" } | $TOKEN=
  4: headers in [[feeds]]: the header "x-key" needs the environment variable TOKEN, which is not set
FEED | headers = { X-Key = "${TOKEN" }
  4: headers in [[feeds]]: the header "x-key" has a ${ without a }
FEED | headers = { X-Key = "${}" }
  4: headers in [[feeds]]: the header "x-key" has a ${…} that is not a valid variable name
FEED | headers = { X-Key = "${1A}" }
  4: headers in [[feeds]]: the header "x-key" has a ${…} that is not a valid variable name
FEED | headers = { X-Key = "${A-B}" }
  4: headers in [[feeds]]: the header "x-key" has a ${…} that is not a valid variable name
FEED | headers = { X-Key = "${A B}" }
  4: headers in [[feeds]]: the header "x-key" has a ${…} that is not a valid variable name
FEED | headers = { X-Key = "${TOKEN} ${TOKEN}" } | $TOKEN=${NONE}
FEED | headers = { X-Key = "Bearer ${TOKEN}" } | $TOKEN=hunter2
  4: headers in [[feeds]]: the environment variable TOKEN, for the header "x-key", has characters that are not allowed in a header (a line break at its end?)
FEED | basic_auth = "reader:hunter2"
FEED | basic_auth = "${USER_AND_PASSWORD}"
FEED | basic_auth = "hunter2"
  4: basic_auth in [[feeds]]: it has no colon between the user and the password
FEED | basic_auth = "reader:${PASSWORD}" | $OTHER=1
  4: basic_auth in [[feeds]]: it needs the environment variable PASSWORD, which is not set
FEED | basic_auth = "reader:hunt\ner" | $OTHER=1
  4: basic_auth in [[feeds]]: it has control characters
FEED | basic_auth = "reader:hunter2" | headers = { Authorization = "Bearer x" }
  4: basic_auth in [[feeds]]: headers has the header Authorization already

# Secrets in files, which `stentor check` only warns of.
FEED | headers = { X-Key = "${file:/dev}" } | $A=
  4: headers in [[feeds]]: the header "x-key" needs the file /dev, which is not a regular file
FEED | headers = { X-Key = "${file:/dev}" }
  warning: 4: headers in [[feeds]]: the file /dev is not a regular file; the server won't start without it
FEED | headers = { X-Key = "${file:secret}" }
  4: headers in [[feeds]]: the header "x-key" has a ${file:…} without an absolute path
[[feeds]] | name = "a" | url = "${file:/dev}/x" | $A=
  3: url in [[feeds]]: the URL needs the file /dev, which is not a regular file; found "${file:/dev}/x"
[[feeds]] | name = "a" | url = "${file:/dev}/x"
  warning: 3: url in [[feeds]]: the file /dev is not a regular file; the server won't start without it; found "${file:/dev}/x"
HOOK | secret = "${file:/dev}" | $A=
  5: secret in [[hooks]]: it needs the file /dev, which is not a regular file
HOOK | secret = "${file:/dev}"
  warning: 5: secret in [[hooks]]: the file /dev is not a regular file; the server won't start without it

# Secrets in URLs.
[[feeds]] | name = "a" | url = "${BASE}/x?token=${TOKEN}"
[[feeds]] | name = "a" | url = "${BASE}/x?token=${TOKEN}" | $BASE=http://h:81/v1/ | $TOKEN=a&b
[[feeds]] | name = "a" | url = "http://h/${TOKEN}"
[[feeds]] | name = "a" | url = "http://h/${TOKEN"
  3: url in [[feeds]]: the URL has a ${ without a }; found "http://h/${TOKEN"
[[feeds]] | name = "a" | url = "http://h/${TOKEN}" | $A=
  3: url in [[feeds]]: the URL needs the environment variable TOKEN, which is not set; found "http://h/${TOKEN}"
[[feeds]] | name = "a" | url = "${BASE}/x" | $BASE=hunter2
  3: url in [[feeds]]: the environment variable BASE begins the URL, and isn't http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH]; found "${BASE}/x"
[[feeds]] | name = "a" | url = "${BASE}x" | $BASE=http://h
  3: url in [[feeds]]: a / or a ? must follow the environment variable BASE in the URL, because it has a host; found "${BASE}x"
[[feeds]] | name = "a" | url = "http://${HOST}/x" | $HOST=hunter2:80
  3: url in [[feeds]]: the environment variable HOST has characters that are not allowed in a host; found "http://${HOST}/x"
[[feeds]] | name = "a" | url = "http://h:${PORT}/x" | $PORT=hunter2
  3: url in [[feeds]]: the port is no number below 65,536: "http://h:***/x"; found "http://h:${PORT}/x"

# The way to an upstream.
[[feeds]] | name = "a" | url = "https://10.0.0.1" | host = "api.example.com:8443"
FEED | host = "a/b"
  4: host in [[feeds]]: expected a name or an address, such as "api.example.com" or "api.example.com:8443", found "a/b"
FEED | socket = "/run/api.sock"
FEED | socket = "api.sock"
  4: socket in [[feeds]]: expected an absolute path, such as "/run/api.sock", found "api.sock"
FEED | proxy = "http://proxy:3128"
FEED | proxy = "environment"
FEED | proxy = "environment" | $HTTP_PROXY=http://user:pass@proxy:3128 | $no_proxy=localhost
FEED | proxy = "environment" | $HTTPS_PROXY=socks5://user:hunter2@proxy
  4: proxy in [[feeds]]: the environment variable HTTPS_PROXY is no URL such as http://proxy.example.com:3128
FEED | proxy = "https://proxy"
  4: proxy in [[feeds]]: expected "environment" or a URL such as "http://proxy.example.com:3128", found "https://proxy"
FEED | proxy = "http://user:hunter2@proxy"
  4: proxy in [[feeds]]: credentials belong in the environment: set proxy = "environment", and HTTPS_PROXY or HTTP_PROXY
FEED | proxy = 3128
  4: proxy in [[feeds]]: expected "environment" or a URL such as "http://proxy.example.com:3128", found the number 3128
FEED | proxy = "http://proxy" | socket = "/run/api.sock"
  4: proxy in [[feeds]]: there is no proxy on the way to a socket; found "http://proxy"
FEED | cookies = true
FEED | cookies = true | headers = { Cookie = "a=b" }
  4: cookies in [[feeds]]: headers has the header Cookie already; found true
FEED | redirects = "same_path"
FEED | redirects = "all"
  4: redirects in [[feeds]]: expected "never" or "same_path", found "all"
FEED | client_key_file = "k"
  4: client_key_file in [[feeds]]: client_certificate_file and client_key_file need each other
FEED | ca_file = "a.pem"
  4: ca_file in [[feeds]]: it is for a url that begins with https://; found "a.pem"
  4: ca_file in [[feeds]]: a.pem: No such file or directory (os error 2); name a file that the server's user can read

# Hooks.
[[hooks]] | name = "a" | url = "http://h"
  1: this hook has no "on"
HOOK | secret = "short"
  5: secret in [[hooks]]: expected at least 16 bytes; `openssl rand -hex 32` generates some
HOOK | secret = "${KEY"
  5: secret in [[hooks]]: the secret has a ${ without a }
HOOK | secret = "${KEY}-0123456789abcdef" | $KEY=
  5: secret in [[hooks]]: it needs the environment variable KEY, which is not set
HOOK | timeout = "5s"
  5: timeout in [[hooks]]: "5s" isn't shorter than "5s", which clients wait (decision_timeout in [limits])
[[hooks]] | name = "a" | url = "ftp://h" | on = ["event"] | HOOK
  3: url in [[hooks]]: expected a URL beginning with http:// or https://; found "ftp://h"
  6: name in [[hooks]]: hook number 1 has the same name
[[hooks]] | name = "a" | url = "http://u:password@h" | on = ["event"]
  3: url in [[hooks]]: credentials don't belong in the URL; use secret to sign requests
[[hooks]] | name = "a" | url = "http://h" | on = []
  4: on in [[hooks]]: name at least one of connect, subscribe, publish, event, or a notice; found []
[server] | app = "echo" | HOOK
  warning: 2: [[hooks]]: app = "echo" in [server] hands no events over; use "rooms"

# Links.
[[links]] | path = "/a/"
  1: this link has no "app"
[[links]] | app = "Chat" | [[links]] | app = "a" | path = "/a" | [[links]] | app = "b" | path = "/a?b/"
  2: app in [[links]]: expected 1 to 64 of a-z 0-9 - _, found "Chat"
  5: path in [[links]]: expected a path that begins and ends with /, found "/a"
  8: path in [[links]]: expected a path that begins and ends with /, found "/a?b/"
[[links]] | app = "a" | [[links]] | app = "a" | token = "short"
  4: app in [[links]]: link number 1 has the same app
  4: path in [[links]]: link number 1 has the same path
  5: token in [[links]]: expected at least 16 bytes; `openssl rand -hex 32` generates some
[[links]] | app = "a" | http = true | [[links]] | app = "b" | path = "/b/" | http = true
  7: http in [[links]]: link number 1 has it already; found true
[[links]] | app = "a" | on_crash = "retry"
  3: on_crash in [[links]]: expected "disconnect" or "redeliver" or "drop", found "retry"
[[links]] | app = "a" | token = "${KEY}" | $KEY=0123456789abcdef | [[links]] | app = "b" | path = "/b/" | grace = "1min"

# Rules come before hooks.
HOOK | events = ["msg*"] | [[rules]] | event = "msg" | echo = true
  warning: 7: [[rules]] for "msg": it hides the event from the hook "a", because rules come first; remove the rule, or the event from the hook's events
HOOK | [[rules]] | event = "msg" | echo = true
HOOK | events = ["other"] | [[rules]] | event = "msg" | echo = true
HOOK | events = ["msg"] | namespaces = ["/a"] | [[rules]] | event = "msg" | echo = true | namespace = "/b"

# Files of certificates.
FEED | ca_file = "/nowhere/ca.pem" | client_certificate_file = "/nowhere/a.pem" | client_key_file = "/nowhere/a.key"
  4: ca_file in [[feeds]]: it is for a url that begins with https://; found "/nowhere/ca.pem"
  4: ca_file in [[feeds]]: /nowhere/ca.pem: No such file or directory (os error 2); name a file that the server's user can read
  5: client_certificate_file in [[feeds]]: it is for a url that begins with https://; found "/nowhere/a.pem"
  5: client_certificate_file in [[feeds]]: /nowhere/a.pem: No such file or directory (os error 2); name a file that the server's user can read
  6: client_key_file in [[feeds]]: /nowhere/a.key: No such file or directory (os error 2); name a file that the server's user can read
HOOK | ca_file = "/nowhere/ca.pem" | [[tls]] | certificate = "/nowhere/a.pem" | key = "/nowhere/a.key" | [auth] | ca_file = "/nowhere/b.pem" | anonymous = "allow"
  5: ca_file in [[hooks]]: /nowhere/ca.pem: No such file or directory (os error 2); name a file that the server's user can read
  7: certificate in [[tls]]: /nowhere/a.pem: can't be read: No such file or directory (os error 2); name a file that the server's user can read
  8: key in [[tls]]: /nowhere/a.key: can't be read: No such file or directory (os error 2); name a file that the server's user can read
  10: ca_file in [auth]: /nowhere/b.pem: No such file or directory (os error 2); name a file that the server's user can read
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[cluster] | engine = "redis://127.0.0.1" | ca_file = "/nowhere/ca.pem" | credentials_file = "/nowhere/creds" | listen = "0.0.0.0:7000" | [server] | tls_ticket_secret_file = "/nowhere/secret"
  3: ca_file in [cluster]: /nowhere/ca.pem: No such file or directory (os error 2); name a file that the server's user can read
  4: credentials_file in [cluster]: /nowhere/creds: No such file or directory (os error 2); name a file that the server's user can read
  5: listen in [cluster]: 0.0.0.0:7000 names no address of this machine: set advertise as well
  7: tls_ticket_secret_file in [server]: /nowhere/secret: can't be read: No such file or directory (os error 2); name a file that the server's user can read

# Units and quotes.
FEED | poll_interval = "5" | timeout = 5 | document_bytes_max = "5" | concurrency_max = "5" | cookies = "true"
  4: poll_interval in [[feeds]]: expected a duration such as "25s", "300ms", "5min" or "1h", found "5"; a unit is missing: "5s"?
  5: timeout in [[feeds]]: expected a duration such as "25s", "300ms", "5min" or "1h", found the number 5; a unit is missing: "5s"?
  6: document_bytes_max in [[feeds]]: expected a size such as "1MB", "64KiB" or 65536, found "5"; a unit is missing: "5B" or "5MB"?
  7: concurrency_max in [[feeds]]: expected a whole number, found "5"; write 5 without quotes
  8: cookies in [[feeds]]: expected true or false, found "true"; write true without quotes

# Rules that can do nothing.
[[rules]] | event = "a" | echo = true | [[rules]] | event = "b" | join = ["r"]
[[rules]] | event = "a" | namespace = "/n"
  warning: 2: [[rules]] for "a": it does nothing, so the event is ignored (set join, leave, broadcast, echo or ack)
[[rules]] | event = "a" | echo = true | [[rules]] | event = "a" | ack = true
  warning: 5: [[rules]] for "a": it never applies, because rule number 1 is for the same event
[[rules]] | event = "a" | echo = true | [[rules]] | event = "a" | ack = true | namespace = "/n"
  warning: 5: [[rules]] for "a": it never applies, because rule number 1 is for the same event
[[rules]] | event = "a" | echo = true | namespace = "/n" | [[rules]] | event = "a" | ack = true | namespace = "/n"
  warning: 6: [[rules]] for "a": it never applies, because rule number 1 is for the same event
[[rules]] | event = "a" | echo = true | namespace = "/n" | [[rules]] | event = "a" | ack = true
[[rules]] | event = "a" | echo = true | namespace = "/n" | [[rules]] | event = "a" | ack = true | namespace = "/m"
[[rules]] | event = "a" | echo = true | except_sender = true
  warning: 2: [[rules]] for "a": except_sender and broadcast_as have no effect without broadcast
[[rules]] | event = "a" | broadcast = ["*"] | except_sender = true

# A history that is more than may be queued for a session.
[rooms] | history_length = 10 | history_bytes_max = "2MiB"
  warning: 3: history_bytes_max in [rooms] is "2MiB", more than the "1MiB" that may be queued for a session (send_buffer_bytes_max in [limits]): a client that resumes and missed that much is disconnected (4501)
[rooms] | history_bytes_max = "2MiB"
[rooms] | history_length = 10
[rooms] | history_length = 10 | history_bytes_max = "2MiB" | [limits] | send_buffer_bytes_max = "2MiB"
[rooms] | history_length = 10 | [limits] | send_buffer_bytes_max = 1024
  warning: history_bytes_max in [rooms] is "1MiB", more than the "1KiB" that may be queued for a session (send_buffer_bytes_max in [limits]): a client that resumes and missed that much is disconnected (4501)

# Namespaces that are shared with other servers.
[[cluster.socketio]] | url = "redis://127.0.0.1"
SHARED | adapter = "sharded" | subscription_mode = "dynamic-private"
SHARED | parser = "json"
SHARED | subscription_mode = "static"
  6: subscription_mode in [[cluster.socketio]]: it has no effect unless adapter is "sharded"; found "static"
SHARED | adapter = "sharded" | parser = "json"
  7: parser in [[cluster.socketio]]: it has no effect unless adapter is "classic"; found "json"
[cluster] | certificate_file = "node.pem"
  2: certificate_file and key_file in [cluster] need each other: set both; found "node.pem"
[[cluster.socketio]] | namespaces = ["/"]
  2: this [[cluster.socketio]] has no url, and there is no Redis in [cluster] engine to use instead
[cluster] | engine = "nats://a" | [[cluster.socketio]] | namespaces = ["/"]
  4: this [[cluster.socketio]] has no url, and there is no Redis in [cluster] engine to use instead
[[cluster.socketio]] | url = "nats://a" | namespaces = ["/"]
  2: url in [[cluster.socketio]]: expected the URL of a Redis; found "nats://a"
SHARED | namespaces = ["a"]
  6: namespaces in [[cluster.socketio]]: a namespace must begin with / and have no comma or question mark: "a"
  warning: 6: namespaces in [[cluster.socketio]]: clients can't connect to "a", because it isn't in namespaces in [socketio]
SHARED | namespaces = []
  6: namespaces in [[cluster.socketio]]: name at least one namespace; found []
SHARED | [[cluster.socketio]] | namespaces = ["/"]
  7: namespaces in [[cluster.socketio]]: "/" is shared already; it can be shared once with servers in Node, and once with those in Python
SHARED | [rooms] | history_length = 1
  7: history_length in [rooms] and [[cluster.socketio]] exclude each other: Socket.IO's servers publish without positions, so that rooms of shared namespaces can't keep a history; remove one of them; found 1
SHARED | namespaces = ["/b"]
  warning: 6: namespaces in [[cluster.socketio]]: clients can't connect to "/b", because it isn't in namespaces in [socketio]

# Authentication.
 | [auth]
  2: [auth] has no [[auth.issuers]], so that no client could connect; add one, or set anonymous = "allow"
[auth] | leeway = "1s"
  1: [auth] has no [[auth.issuers]], so that no client could connect; add one, or set anonymous = "allow"
$STENTOR_AUTH_ANONYMOUS=refuse
  STENTOR_AUTH_ANONYMOUS: [auth] has no [[auth.issuers]], so that no client could connect; add one, or set anonymous = "allow"; found refuse
[[auth.issuers]] | issuer = "i"
  1: this auth.issuer has no "algorithms"
  2: keys in [[auth.issuers]]: an issuer has either keys or a jwks_url
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["none"]
  2: keys in [[auth.issuers]]: an issuer has either keys or a jwks_url
  3: algorithms in [[auth.issuers]]: expected an algorithm such as "RS256", "ES256", "EdDSA" or "HS256", found "none"
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["RS256"] | audience = "a" | jwks_url = "https://id.test/keys" | keys = [{ secret = "0123456789abcdef0123456789abcdef" }]
  6: keys in [[auth.issuers]]: an issuer has either keys or a jwks_url
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["RS256"] | jwks_url = "https://id.test/keys"
  2: audience in [[auth.issuers]]: required with jwks_url: the issuer makes tokens for others, too, which would be accepted
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["RS256", "HS256"] | audience = "a" | jwks_url = "https://id.test/keys"
  3: algorithms in [[auth.issuers]]: HS256 needs a secret in keys; the keys at a jwks_url are public
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["RS256"] | audience = "a" | jwks_url = "http://id.test/keys"
  5: jwks_url in [[auth.issuers]]: expected a URL such as https://id.example.com/.well-known/jwks.json; http:// only with 127.0.0.1, [::1] or localhost; found "http://id.test/keys"
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["HS256"] | keys = [{ secret = "short" }]
  4: keys in [[auth.issuers]]: key number 1: a secret needs 32 to 1,024 bytes, as many as the hash of its algorithm (HS256: 32); `openssl rand -hex 32` makes one
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["HS256", "HS512"] | keys = [{ secret = "0123456789abcdef0123456789abcdef" }]
  3: algorithms in [[auth.issuers]]: no key is for HS512 (a secret of at least 64 bytes)
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["ES256"] | keys = [{ secret = "0123456789abcdef0123456789abcdef" }]
  3: algorithms in [[auth.issuers]]: no key is for ES256
  4: keys in [[auth.issuers]]: key number 1: it is for none of the algorithms
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["ES256"] | keys = [{ public_key_file = "/nonexistent.pem" }]
  4: keys in [[auth.issuers]]: key number 1: /nonexistent.pem: cannot be read: No such file or directory (os error 2)
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["HS256"] | keys = [{ kid = "a" }]
  2: keys in [[auth.issuers]]: an issuer has either keys or a jwks_url
  4: keys in [[auth.issuers]]: a key needs secret, public_key or public_key_file
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["HS256"] | keys = [{ secret = "a", public_key = "b" }]
  2: keys in [[auth.issuers]]: an issuer has either keys or a jwks_url
  4: keys in [[auth.issuers]]: a key has one of secret, public_key and public_key_file
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["HS256"] | keys = [{ scret = "a" }]
  2: keys in [[auth.issuers]]: an issuer has either keys or a jwks_url
  4: keys in [[auth.issuers]]: "scret" means nothing in a key; expected kid, secret, public_key or public_key_file
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["HS256"] | keys = [{ secret = 7 }]
  2: keys in [[auth.issuers]]: an issuer has either keys or a jwks_url
  4: keys in [[auth.issuers]]: secret of a key has no text in quotes
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["HS256"] | keys = [{ secret = "${X" }]
  2: keys in [[auth.issuers]]: an issuer has either keys or a jwks_url
  4: keys in [[auth.issuers]]: secret of a key has a ${ without a }
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["HS256"] | keys = "secret"
  2: keys in [[auth.issuers]]: an issuer has either keys or a jwks_url
  4: keys in [[auth.issuers]]: expected an array of tables such as [{ kid = "k1", secret = "${JWT_SECRET}" }], found "secret"
  warning: there are no [[permissions]]: clients may do only what their tokens grant
ISSUER | ISSUER
  6: issuer in [[auth.issuers]]: issuer number 1 has the same name
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[auth] | anonymous = "allow" | [[auth.issuers]] | issuer = "proxy" | algorithms = ["HS256"] | keys = [{ secret = "0123456789abcdef0123456789abcdef" }]
  4: issuer in [[auth.issuers]]: the users of [auth.proxy] have this issuer
  warning: there are no [[permissions]]: clients may do only what their tokens grant

# An authenticating proxy.
ISSUER | [auth.proxy] | from = ["10.0.0.7"]
  6: user_header in [auth.proxy]: required: the header in which the proxy names the user
  warning: there are no [[permissions]]: clients may do only what their tokens grant
ISSUER | [auth.proxy] | user_header = "X-User"
  6: from in [auth.proxy]: required: the addresses of the proxies; proxies.trusted doesn't count
  warning: there are no [[permissions]]: clients may do only what their tokens grant
ISSUER | [auth.proxy] | user_header = "X_User" | from = ["10.0.0.7"]
  6: user_header in [auth.proxy]: expected the name of a header (letters, digits and "-"), found "X_User"
  7: user_header in [auth.proxy]: required: the header in which the proxy names the user
  warning: there are no [[permissions]]: clients may do only what their tokens grant
ISSUER | [auth.proxy] | user_header = "X-User" | from = ["0.0.0.0/0"]
  7: from in [auth.proxy]: with every address, every client could name any user; found ["0.0.0.0/0"]
  warning: there are no [[permissions]]: clients may do only what their tokens grant
ISSUER | [auth.proxy] | user_header = "X-User" | from = ["::1"] | groups_header = "x-user"
  6: user_header in [auth.proxy]: the headers must have different names; found "X-User"
  warning: there are no [[permissions]]: clients may do only what their tokens grant
ISSUER | [auth.proxy] | user_header = "X-User" | from = ["::1"] | secret = "0123456789abcdef"
  6: secret_header in [auth.proxy]: secret_header and secret need each other: set STENTOR_AUTH_PROXY_SECRET
  warning: there are no [[permissions]]: clients may do only what their tokens grant

# Secrets from the environment, which `stentor check` doesn't read.
[[auth.issuers]] | issuer = "i" | algorithms = ["HS256"] | keys = [{ secret = "${JWT_SECRET}" }]
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["HS256"] | keys = [{ secret = "${JWT_SECRET}" }] | $JWT_SECRET=0123456789abcdef0123456789abcdef
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["HS256"] | keys = [{ secret = "${JWT_SECRET}" }] | $JWT_SECRET=
  4: keys in [[auth.issuers]]: a key needs the environment variable JWT_SECRET, which is not set
  warning: there are no [[permissions]]: clients may do only what their tokens grant
[[auth.issuers]] | issuer = "i" | algorithms = ["HS256"] | keys = [{ secret = "${JWT_SECRET}" }] | $JWT_SECRET=hunter2
  4: keys in [[auth.issuers]]: key number 1: a secret needs 32 to 1,024 bytes, as many as the hash of its algorithm (HS256: 32); `openssl rand -hex 32` makes one
  warning: there are no [[permissions]]: clients may do only what their tokens grant

# Permissions.
[[permissions]] | topics = ["a"] | allow = ["publish"]
  3: [[permissions]] need [auth]: without it, clients may do everything
ISSUER
  warning: there are no [[permissions]]: clients may do only what their tokens grant
ISSUER | [[permissions]] | topics = ["a"] | allow = ["subscribe"]
ISSUER | [[permissions]] | topics = ["a"]
  5: this permission has no "allow"
ISSUER | [[permissions]] | topics = ["a"] | allow = []
  7: [[permissions]] number 1: allow is empty; expected subscribe, publish, presence or history; found []
ISSUER | [[permissions]] | topics = ["a"] | allow = ["read"]
  7: [[permissions]] number 1: "read" is not an action; expected subscribe, publish, presence or history
ISSUER | [[permissions]] | allow = ["publish"]
  6: [[permissions]] number 1: names no topics, feeds or rooms
ISSUER | [[permissions]] | rooms = ["user-*"] | allow = ["publish"]
  6: [[permissions]] number 1: "user-*" has a * next to other characters: * stands for a whole segment, between / or :
ISSUER | [[permissions]] | rooms = ["a"] | allow = ["publish"] | to = "all"
  8: to in [[permissions]]: expected "users" or "anyone", found "all"
ISSUER | [[permissions]] | rooms = ["user-{sub}", "user-{sub}-private"] | allow = ["subscribe"]
  warning: [[permissions]]: "user-{sub}" and "user-{sub}-private" may match the same name: the value of a claim may contain the other's text. Separate the claim by / or :
# The older key for publishing.
[rooms] | publish = true | ISSUER
  warning: 2: publish = true in [rooms] is deprecated with [auth]. It means: [[permissions]] rooms = ["**"], allow = ["publish"], to = "anyone". Write that instead, or narrow it
[rooms] | publish = true | ISSUER | [[permissions]] | rooms = ["a"] | allow = ["publish"]
  2: publish in [rooms] and [[permissions]] with "publish" exclude each other: publish = true allows every client to publish to every room; remove it
"##;

/// Returns the messages of a case, one per line.
fn said(case: &'static str) -> Vec<String> {
    let (mut text, mut flags, mut variables) = (Vec::new(), Vec::new(), Vec::new());
    for part in case.split(" | ") {
        if let Some((name, value)) = part.strip_prefix('$').and_then(|variable| variable.split_once('=')) {
            variables.push((name.to_owned(), value.to_owned()));
        } else if let Some((name, value)) = part.strip_prefix("--").and_then(|flag| flag.split_once(' ')) {
            flags.push((name, Some(value.to_owned())));
        } else {
            let lines = SHORTHANDS.iter().find(|(shorthand, _)| *shorthand == part);
            text.push(lines.map_or(part, |(_, lines)| lines.trim_end()));
        }
    }
    let mut sources = Sources::default();
    file::apply(&mut sources, "stentor.toml", &text.join("\n"));
    if !variables.is_empty() {
        sources = sources.environment(variables);
    }
    let said: Vec<String> = match sources.flags(flags).load() {
        Ok((_, warnings)) => warnings.iter().map(|warning| format!("warning: {warning}")).collect(),
        Err(problems) => problems.to_string().lines().map(str::to_owned).collect(),
    };
    said.iter().map(|line| line.replacen("stentor.toml:", "", 1)).collect()
}

#[test]
fn every_mistake_and_every_warning_has_its_message() {
    let mut cases: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            Some(message) => cases.last_mut().unwrap().1.push(message),
            None => cases.push((line, Vec::new())),
        }
    }
    assert!(cases.len() > 160, "only {} cases were found: the table is not read right", cases.len());
    let differs = cases.iter().map(|(case, expect)| (case, said(case), expect));
    let differs: Vec<_> = differs.filter(|(_, said, expect)| said != *expect).collect();
    assert!(differs.is_empty(), "(case, said, expected): {differs:#?}");
}
