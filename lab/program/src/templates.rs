//! The templates of pages, pictures, lists and configurations, in the folder `templates`. They have the words, the markup and their order; the
//! callers have the values.

use std::sync::LazyLock;

use minijinja::{Environment, Value};

macro_rules! embedded {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("templates/", $name)))),*] };
}

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let texts = embedded! {
        "page.css" "layout.html" "parts.html" "result.html" "index.html" "sections.html" "list.md" "svg.xml" "plot.xml" "bars.xml"
        "stentor.toml" "nginx.conf"
    };
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    for (name, text) in texts {
        environment.add_template(name, text).unwrap_or_else(|error| panic!("template {name}: {error:#}"));
    }
    environment
});

/// Renders a template. A mistake in one is a bug of this program.
pub(crate) fn render(name: &str, values: &Value) -> String {
    let text = TEMPLATES.get_template(name).and_then(|template| template.render(values));
    text.unwrap_or_else(|error| panic!("template {name}: {error:#}"))
}
