//! docs/configuration.md, written from the table of keys.

use super::environment::variable;
use super::schema::required;
use super::{SectionInfo, sections};
use std::fmt::Write;

const HEAD: &str = "\
# Configuration

<!-- Generated from crates/stentor/src/config/schema; a test compares. To generate it again:
     cargo run -p stentor -- keys > docs/configuration.md -->

Stentor runs without any configuration. Settings are read in this order of precedence:

1. a flag (`stentor serve --help` lists them);
2. an environment variable, `STENTOR_SECTION_KEY`, e.g. `STENTOR_LIMITS_MESSAGE_BYTES_MAX=2MB`; lists are
   separated by commas;
3. the TOML file named by `--config` or `STENTOR_CONFIG`.

SIGHUP, or `POST /api/v1/reload` on the admin port, applies changes to a running server ([deploys.md](deploys.md#reload)). A key that says *Needs a restart*
keeps its value until then.

`stentor check FILE` reports the mistakes in a file, its changes to the defaults and what it needs ([operate.md](operate.md#check-before-the-start)).
`stentor keys` prints this page.

Durations need a unit: `\"300ms\"`, `\"25s\"`, `\"5min\"`, `\"1h\"`. Sizes are integers (bytes) or
have a unit: `\"1MB\"` is 1,000,000 bytes, `\"1MiB\"` is 1,048,576.

```toml
[server]
listen = \"0.0.0.0:8000\"

[origins]
allow = [\"https://example.com\", \"https://*.example.com\"]

[[feeds]]
name = \"scores\"
prefix = \"scores/\"                  # the key scores/8/live …
url = \"https://api.example.com/v1\"  # … is fetched from https://api.example.com/v1/scores/8/live
poll_interval = \"2s\"
headers = { Authorization = \"Bearer ${API_TOKEN}\" }  # from the environment

[[feeds]]
name = \"centre\"
key = \"matchesfeed/{id}/matchcentre\"
url = \"https://api.example.com/match/{id}?full=1\"
```
";

/// Returns the complete page.
pub(crate) fn markdown() -> String {
    let mut page = String::from(HEAD);
    for section in sections() {
        // Writing to a string can't fail.
        let _ = write_section(&mut page, &section);
    }
    page
}

fn write_section(page: &mut String, section: &SectionInfo) -> std::fmt::Result {
    let name = section.name;
    writeln!(page, "\n## `{}`\n\n{}\n", section.bracketed(), section.doc)?;
    writeln!(page, "| key | default | values | meaning |\n|---|---|---|---|")?;
    for key in &section.keys {
        let required = required(name).contains(&key.name);
        let default = if required { "required".into() } else { format!("`{}`", key.default) };
        let values = match &key.range {
            Some(range) => format!("{}, {}", key.unit, range.replace('"', "")),
            None => key.unit.clone(),
        };
        let values = values.replace('|', "\\|");
        let restart = if key.restart { " *Needs a restart.*" } else { "" };
        writeln!(page, "| `{}` | {default} | {values} | {}{restart} |", key.name, key.doc)?;
    }
    if !section.repeated
        && let Some(key) = section.keys.first()
    {
        writeln!(page, "\nEnvironment variables: `{}` and so on.", variable(name, key.name))?;
    }
    Ok(())
}
