//! A custom protocol, in the same rooms as all other protocols:
//!
//! ```sh
//! cargo run -p stentor-edge --example lines
//! npx wscat -c ws://127.0.0.1:8000/lines
//! ```
#![expect(clippy::print_stdout, reason = "a command-line program")]

mod protocol;

use std::error::Error;
use std::sync::Arc;
use stentor_edge::{ControlPlane, DriverChoice, Node, Options};

struct NoControl;

impl ControlPlane for NoControl {
    fn interest_changed(&self) {}
    fn space(&self) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options::default();
    options.protocols.push(protocol::protocol());
    let node = Node::start(options, DriverChoice::Auto, Arc::new(NoControl), None)?;
    println!("ws://{}/lines", node.started().addr);
    Ok(node.join()?)
}
