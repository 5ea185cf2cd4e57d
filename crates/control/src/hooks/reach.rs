//! One request to a hook without questions and notices, for `stentor check --connect`.

use super::answer;
use super::http::{Sender, body};
use super::options::{HookKind, HookOptions};
use std::iter::empty;
use std::time::Instant;

/// The name of the node in the request.
const NODE: &str = "check";

impl HookOptions {
    /// Sends a signed request without questions and notices, within `timeout` of the options. Returns a description of the response.
    ///
    /// # Errors
    /// The reason why the hook couldn't answer a question.
    pub async fn reach(&self) -> Result<String, String> {
        let sender = Sender::new(self).map_err(|error| error.to_string())?;
        let asks = HookKind::QUESTIONS.iter().any(|kind| self.on.contains(kind));
        let what = if asks { "questions" } else { "notices" };
        let response = sender.send(body(NODE, what, empty()), Instant::now() + self.timeout).await;
        let response = response.map_err(|(_, text)| text)?;
        let text = answer::text(response).and_then(|text| answer::answers(&text).map(|_| ()));
        match text {
            Err(wrong) if asks => {
                Err(format!("it answered 200, but the response is not as docs/hooks.md describes: {wrong}"))
            }
            _ => Ok("it answered 200 to a request without questions".into()),
        }
    }
}
