//! The options of a worker's engine in HELLO: read, limited to what the node allows, and written back for WELCOME.

use serde_json::{Map, Value};
use std::time::Duration;
use stentor_ports::{EngineCookie, EngineCors, EngineOptions, EngineOrigins};

/// Limits of a heartbeat and of an upgrade in milliseconds.
const MS: std::ops::RangeInclusive<u64> = 1..=3_600_000;

/// The methods that the package `cors` allows.
const METHODS: &str = "GET,HEAD,PUT,PATCH,POST,DELETE";

/// The status of a response to a preflight request.
const NO_CONTENT: u16 = 204;

/// The reason why an option can't be applied, for people.
type Mistake = String;

/// The node's part in the options of an application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed<'a> {
    /// The path in the configuration. Empty: the workers' path applies.
    pub(crate) path: &'a str,
    /// Maximum size of a client's message in bytes.
    pub(crate) message_bytes_max: usize,
}

/// Reads the options of an engine, and replaces those that the node decides. Absent options are the node's.
///
/// # Errors
/// An option can't be applied.
pub(crate) fn read(options: &mut Value, allowed: Allowed<'_>) -> Result<EngineOptions, Mistake> {
    let Some(options) = options.as_object_mut() else { return Err("the options are no object".into()) };
    let mut read = EngineOptions::of_path(&path(options, allowed.path)?);
    options.insert("path".into(), (&*read.path).into());
    read.ping_interval = millis(options, "pingInterval")?;
    read.ping_timeout = millis(options, "pingTimeout")?;
    read.upgrade_timeout = millis(options, "upgradeTimeout")?;
    if let Some(bytes) = number(options, "maxHttpBufferSize", &(1..=u64::MAX))? {
        let bytes = usize::try_from(bytes)
            .map_or(allowed.message_bytes_max, |own| own.min(allowed.message_bytes_max));
        options.insert("maxHttpBufferSize".into(), bytes.into());
        read.message_bytes_max = Some(bytes);
    }
    if let Some(transports) = options.get("transports") {
        let has = |name: &str| transports.as_array().is_some_and(|all| all.iter().any(|one| one == name));
        (read.has_polling, read.has_websocket) = (has("polling"), has("websocket"));
        if !read.has_polling && !read.has_websocket {
            return Err(wrong("transports", "name `polling`, `websocket` or both", transports));
        }
    }
    read.allows_upgrades = flag(options, "allowUpgrades")?.unwrap_or(true);
    read.allows_version_3 = flag(options, "allowEIO3")?.unwrap_or(true);
    read.serves_client = flag(options, "serveClient")?.unwrap_or(true);
    read.cookie = given(options, "cookie").map(cookie).transpose()?;
    read.cors = given(options, "cors").map(cors).transpose()?.flatten();
    Ok(read)
}

fn wrong(name: &str, expected: &str, found: &Value) -> Mistake {
    format!("the option `{name}` must {expected}, and is {}", shown(found))
}

/// The text of a value, for people.
fn shown(value: &Value) -> String {
    const CHARS_MAX: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// An option other than `null` and `false`.
fn given<'a>(options: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    options.get(name).filter(|value| !matches!(value, Value::Null | Value::Bool(false)))
}

fn number(
    options: &Map<String, Value>,
    name: &str,
    range: &std::ops::RangeInclusive<u64>,
) -> Result<Option<u64>, Mistake> {
    let Some(value) = options.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    // Numbers of JavaScript may have a fraction, as in 1e6 / 3.
    let whole = value.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64);
    match whole.filter(|whole| range.contains(whole)) {
        Some(whole) => Ok(Some(whole)),
        None => Err(wrong(name, &format!("be a number from {} to {}", range.start(), range.end()), value)),
    }
}

fn millis(options: &Map<String, Value>, name: &str) -> Result<Option<Duration>, Mistake> {
    Ok(number(options, name, &MS)?.map(Duration::from_millis))
}

fn flag(options: &Map<String, Value>, name: &str) -> Result<Option<bool>, Mistake> {
    match options.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(wrong(name, "be `true` or `false`", other)),
    }
}

/// The path of the application's clients.
fn path(options: &Map<String, Value>, fixed: &str) -> Result<String, Mistake> {
    if !fixed.is_empty() {
        return Ok(fixed.to_owned());
    }
    let Some(value) = options.get("path").filter(|value| !value.is_null()) else { return Ok(String::new()) };
    let is_valid = |path: &&str| {
        path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#%".contains(&byte))
    };
    let path = value.as_str().filter(is_valid).ok_or_else(|| wrong("path", "begin with `/`", value))?;
    // As in engine.io: the path ends with a slash unless `addTrailingSlash` is `false`.
    let bare = path.strip_suffix('/').unwrap_or(path);
    let has_slash = options.get("addTrailingSlash") != Some(&Value::Bool(false)) || bare.is_empty();
    Ok(if has_slash { format!("{bare}/") } else { bare.to_owned() })
}

/// A text without control characters and separators of cookies.
fn token<'a>(name: &str, value: &'a Value) -> Result<&'a str, Mistake> {
    let is_valid =
        |text: &&str| text.bytes().all(|byte| (b' '..0x7f).contains(&byte) && !b";,".contains(&byte));
    value.as_str().filter(is_valid).ok_or_else(|| wrong(name, "be a text without `;` and `,`", value))
}

fn cookie(value: &Value) -> Result<EngineCookie, Mistake> {
    let get = |name: &str| value.get(name).filter(|value| !matches!(value, Value::Null | Value::Bool(false)));
    let name = get("name").map_or(Ok("io"), |name| token("cookie.name", name))?;
    if name.is_empty() || name.bytes().any(|byte| matches!(byte, b'=' | b' ')) {
        return Err(wrong("cookie.name", "be a name", &name.into()));
    }
    let mut attributes = String::new();
    // The order is that of the package `cookie`.
    if let Some(seconds) = value.as_object().map_or(Ok(None), |all| number(all, "maxAge", &(0..=u64::MAX)))? {
        attributes.push_str(&format!("; Max-Age={seconds}"));
    }
    for (key, attribute) in [("domain", "Domain"), ("path", "Path")] {
        if let Some(text) = get(key) {
            attributes.push_str(&format!("; {attribute}={}", token("cookie", text)?));
        }
    }
    for (key, attribute) in [("httpOnly", "HttpOnly"), ("secure", "Secure"), ("partitioned", "Partitioned")] {
        if get(key).is_some() {
            attributes.push_str(&format!("; {attribute}"));
        }
    }
    match get("sameSite") {
        None => {}
        Some(Value::Bool(true)) => attributes.push_str("; SameSite=Strict"),
        Some(text) => {
            let own = token("cookie.sameSite", text)?;
            let found = ["Strict", "Lax", "None"].into_iter().find(|known| known.eq_ignore_ascii_case(own));
            let found =
                found.ok_or_else(|| wrong("cookie.sameSite", "be `strict`, `lax` or `none`", text))?;
            attributes.push_str(&format!("; SameSite={found}"));
        }
    }
    Ok(EngineCookie { name: name.into(), attributes: attributes.into() })
}

/// A value of a header: a text, or a list of texts.
fn joined(name: &str, value: &Value) -> Result<Box<str>, Mistake> {
    let texts = match value {
        Value::Array(list) => list.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
        other => other.as_str().map(|text| vec![text]),
    };
    let is_valid = |text: &String| text.bytes().all(|byte| (b' '..0x7f).contains(&byte));
    let text = texts.map(|texts| texts.join(",")).filter(is_valid);
    text.map(Into::into).ok_or_else(|| wrong(name, "be a text or a list of texts", value))
}

/// Rules for pages of other origins, with the defaults of the package `cors`. `None`: `origin` is `false`.
fn cors(value: &Value) -> Result<Option<EngineCors>, Mistake> {
    let Some(all) = value.as_object() else { return Err(wrong("cors", "be an object", value)) };
    let origins = match all.get("origin") {
        None | Some(Value::Null) => EngineOrigins::Any,
        Some(Value::Bool(false)) => return Ok(None),
        Some(Value::Bool(true)) => EngineOrigins::Reflected,
        Some(Value::String(origin)) if origin == "*" => EngineOrigins::Any,
        Some(Value::String(origin)) => EngineOrigins::Listed(vec![origin.as_str().into()]),
        Some(Value::Array(list)) => {
            let texts =
                list.iter().map(|origin| origin.as_str().map(Into::into)).collect::<Option<Vec<Box<str>>>>();
            let texts = texts.ok_or_else(|| wrong("cors.origin", "be a list of texts", &all["origin"]))?;
            if texts.iter().any(|text| **text == *"*") {
                return Err(wrong(
                    "cors.origin",
                    "be `\"*\"` without a list, or a list without it",
                    &all["origin"],
                ));
            }
            EngineOrigins::Listed(texts)
        }
        Some(other) => {
            return Err(wrong("cors.origin", "be a text, a list of texts, `true` or `false`", other));
        }
    };
    let text = |name: &str| given(all, name).map(|value| joined(&format!("cors.{name}"), value)).transpose();
    Ok(Some(EngineCors {
        origins,
        credentials: flag(all, "credentials")?.unwrap_or(false),
        methods: text("methods")?.unwrap_or_else(|| METHODS.into()),
        allowed_headers: text("allowedHeaders")?.or(text("headers")?),
        exposed_headers: text("exposedHeaders")?,
        max_age: number(all, "maxAge", &(0..=u64::MAX))?.map(|seconds| seconds.to_string().into()),
        preflight_status: number(all, "optionsSuccessStatus", &(200..=299))?
            .map_or(NO_CONTENT, |status| status as u16),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ALLOWED: Allowed<'_> = Allowed { path: "", message_bytes_max: 1_000_000 };

    fn default() -> EngineOptions {
        EngineOptions::default()
    }

    #[test]
    fn options_of_an_engine_are_read_within_limits() {
        let check = |mut options: Value, expect: EngineOptions| {
            let shown = options.to_string();
            assert_eq!(read(&mut options, ALLOWED), Ok(expect), "{shown}");
        };
        check(json!({}), default());
        let ms = |ms| Some(Duration::from_millis(ms));
        check(
            json!({"pingInterval": 300, "pingTimeout": 200.5, "upgradeTimeout": 100}),
            EngineOptions {
                ping_interval: ms(300),
                ping_timeout: ms(200),
                upgrade_timeout: ms(100),
                ..default()
            },
        );
        let sized = |bytes| EngineOptions { message_bytes_max: Some(bytes), ..default() };
        check(json!({"maxHttpBufferSize": 1e8}), sized(1_000_000));
        check(json!({"maxHttpBufferSize": 1_000}), sized(1_000));
        let at = |path: &str| EngineOptions { path: path.into(), ..default() };
        check(json!({"path": "/a"}), at("/a/"));
        check(json!({"path": "/a/b/"}), at("/a/b/"));
        check(json!({"path": "/a/", "addTrailingSlash": false}), at("/a"));
        check(json!({"path": "/"}), at("/"));
        check(
            json!({"transports": ["websocket"], "allowUpgrades": false, "allowEIO3": false, "serveClient": false}),
            EngineOptions {
                has_polling: false,
                allows_upgrades: false,
                allows_version_3: false,
                serves_client: false,
                ..default()
            },
        );
        let with_cookie = |name: &str, attributes: &str| EngineOptions {
            cookie: Some(EngineCookie { name: name.into(), attributes: attributes.into() }),
            ..default()
        };
        check(
            json!({"cookie": {"name": "io", "path": "/", "httpOnly": true, "sameSite": "lax"}}),
            with_cookie("io", "; Path=/; HttpOnly; SameSite=Lax"),
        );
        check(
            json!({"cookie": {"name": "a", "maxAge": 5, "domain": "b.example", "secure": true, "path": false}}),
            with_cookie("a", "; Max-Age=5; Domain=b.example; Secure"),
        );
        check(json!({"cookie": false, "cors": false}), default());
        check(json!({"cors": {"origin": false}}), default());
    }

    #[test]
    fn rules_for_pages_are_those_of_the_package_cors() {
        let check = |options: Value, origin: Option<&str>, expect: &str, preflight: &str| {
            let mut all = json!({ "cors": options });
            let cors = read(&mut all, ALLOWED).unwrap().cors.unwrap();
            let shown = |headers: Vec<(&str, &str)>| {
                let short = |name: &str| name.replace("Access-Control-", "");
                headers
                    .iter()
                    .map(|(name, value)| format!("{}: {value}", short(name)))
                    .collect::<Vec<_>>()
                    .join(" | ")
            };
            assert_eq!(shown(cors.headers(origin)), expect);
            assert_eq!(shown(cors.preflight_headers(Some("x-asked"))), preflight);
        };
        let all = "Allow-Methods: GET,HEAD,PUT,PATCH,POST,DELETE | Allow-Headers: x-asked";
        check(json!({}), Some("http://a"), "Allow-Origin: *", all);
        check(json!({"origin": "*"}), None, "Allow-Origin: *", all);
        check(json!({"origin": true}), Some("http://a"), "Allow-Origin: http://a | Vary: Origin", all);
        check(json!({"origin": "http://a"}), Some("http://b"), "Vary: Origin", all);
        check(
            json!({"origin": ["http://b", "http://a"], "credentials": true, "exposedHeaders": "X-A"}),
            Some("http://a"),
            "Allow-Origin: http://a | Vary: Origin | Allow-Credentials: true | Expose-Headers: X-A",
            all,
        );
        check(
            json!({"origin": "http://a", "methods": ["GET", "POST"], "allowedHeaders": ["a", "b"], "maxAge": 5}),
            None,
            "Vary: Origin",
            "Allow-Methods: GET,POST | Allow-Headers: a,b | Max-Age: 5",
        );
    }

    #[test]
    fn an_option_that_cannot_be_applied_is_named() {
        let check = |mut options: Value, expect: &str| {
            assert_eq!(read(&mut options, ALLOWED), Err(expect.to_owned()));
        };
        check(json!([]), "the options are no object");
        check(
            json!({"pingInterval": 0}),
            "the option `pingInterval` must be a number from 1 to 3600000, and is 0",
        );
        check(
            json!({"pingTimeout": "1s"}),
            "the option `pingTimeout` must be a number from 1 to 3600000, and is \"1s\"",
        );
        check(json!({"path": "a"}), "the option `path` must begin with `/`, and is \"a\"");
        let expect =
            "the option `transports` must name `polling`, `websocket` or both, and is [\"webtransport\"]";
        check(json!({"transports": ["webtransport"]}), expect);
        check(json!({"allowEIO3": 1}), "the option `allowEIO3` must be `true` or `false`, and is 1");
        let expect = "the option `cookie` must be a text without `;` and `,`, and is \"a;b\"";
        check(json!({"cookie": {"path": "a;b"}}), expect);
        check(json!({"cookie": {"name": "a=b"}}), "the option `cookie.name` must be a name, and is \"a=b\"");
        check(json!({"cors": "*"}), "the option `cors` must be an object, and is \"*\"");
        let expect = "the option `cors.methods` must be a text or a list of texts, and is \"\\r\\n\"";
        check(json!({"cors": {"methods": "\r\n"}}), expect);
    }

    #[test]
    fn the_configuration_fixes_the_path() {
        let mut options = json!({"path": "/a", "maxHttpBufferSize": 5e6});
        let read = read(&mut options, Allowed { path: "/b/", message_bytes_max: 100 }).unwrap();
        assert_eq!((&*read.path, read.message_bytes_max), ("/b/", Some(100)));
        assert_eq!(options, json!({"path": "/b/", "maxHttpBufferSize": 100}));
    }
}
