//! Answers to commands.

/// The inbox is full. Wait for [`ControlPlane::space`](crate::ControlPlane::space), then try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// The reason why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// An inbox is full, or memory is short. The command had no effect.
    Busy,
    /// The node stopped before it finished the command.
    Stopped,
}

/// Receives the answer to a command, exactly once. The function runs on a core's thread, or within the call if the command
/// is refused, so it has to return at once.
pub struct Done<T>(Option<Receive<T>>);

type Receive<T> = Box<dyn FnOnce(Result<T, CommandError>) + Send>;

impl<T> Done<T> {
    /// Calls `receive` with the answer.
    pub fn new(receive: impl FnOnce(Result<T, CommandError>) + Send + 'static) -> Self {
        Self(Some(Box::new(receive)))
    }

    /// Gives the answer.
    pub fn answer(mut self, answer: Result<T, CommandError>) {
        if let Some(receive) = self.0.take() {
            receive(answer);
        }
    }
}

impl<T> Drop for Done<T> {
    fn drop(&mut self) {
        if let Some(receive) = self.0.take() {
            receive(Err(CommandError::Stopped));
        }
    }
}
