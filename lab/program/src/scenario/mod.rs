//! Scenarios: published comparisons, repeated, and our own. `declared` reads them. [`crate::bench`] measures their cases. Results
//! are stored (`record`), drawn (`html`, `drawn`, `marks`) and compared (`compare`, `history`, `gate`). `rows` has the goals by work.

pub(crate) mod compare;
mod declared;
mod drawn;
pub(crate) mod gate;
pub(crate) mod history;
mod html;
mod machine;
mod marks;
mod record;
mod rows;
mod run;

pub use declared::{SCENARIOS, Scenario};
pub(crate) use html::{folder_pages, page};
pub(crate) use machine::Machine;
pub use record::Record;
pub(crate) use rows::results;
pub use run::run;
pub(crate) use run::tell;

#[cfg(test)]
mod tests;
