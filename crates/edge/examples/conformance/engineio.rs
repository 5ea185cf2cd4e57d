//! Profiles `engineio-client` and `engineio3-client`.

use stentor_edge::{Application, Connect, Context, Envelope, Message};
use stentor_hub::SessionId;
use stentor_wire::http1::Request;

/// The answer to `give utf8`.
pub(crate) const UTF8: &str = "пойду спать всем спокойной ночи";
/// The answer for clients of version 3.
pub(crate) const UTF8_OF_3: &str = "пойду сать всем мпокойной ночи";

pub(crate) struct Client {
    pub(crate) utf8: &'static str,
}

impl Application for Client {
    fn connect(&mut self, _ctx: &mut Context<'_>, request: &Request<'_>) -> Connect {
        if stentor_wire::http1::query_pairs(request.query()).any(|(name, _)| name == "deny") {
            return Connect::Refuse { status: 403, message: "Forbidden".to_owned() };
        }
        let now = httpdate();
        let cookies = [
            "1=1; Max-Age=86400".to_owned(),
            "2=2; Path=/; HttpOnly; Secure; SameSite=Strict".to_owned(),
            "3=3; Max-Age=0".to_owned(),
            format!("4=4; Expires={now}"),
        ];
        Connect::AcceptWith(cookies.map(|cookie| ("Set-Cookie".to_owned(), cookie)).into())
    }

    fn opened(&mut self, ctx: &mut Context<'_>, session: SessionId, _envelope: Envelope) {
        ctx.send(session, Message::Text("hi"));
    }

    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        match message {
            Message::Text("give binary") => ctx.send(session, Message::Binary(&[0, 1, 2, 3, 4])),
            Message::Text("give utf8") => ctx.send(session, Message::Text(self.utf8)),
            Message::Text("sendHeaders") => {
                let headers = ctx.request().map(headers_json).unwrap_or_else(|| "{}".to_owned());
                ctx.send(session, Message::Text(&headers));
            }
            echoed => ctx.send(session, echoed),
        }
    }
}

/// A request's headers as a JSON object with names in lower case.
pub(crate) fn headers_json(request: &Request<'_>) -> String {
    let mut headers = serde_json::Map::new();
    for (name, value) in request.headers().iter() {
        let value = String::from_utf8_lossy(value).into_owned();
        headers.insert(name.to_ascii_lowercase(), value.into());
    }
    serde_json::Value::from(headers).to_string()
}

/// The current time as an HTTP date (RFC 9110, 5.6.7).
fn httpdate() -> String {
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days to a date by eras of 400 years that begin in March.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(days % 7) as usize];
    let name = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        [(month - 1) as usize];
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {name} {year} {hour:02}:{minute:02}:{second:02} GMT")
}
