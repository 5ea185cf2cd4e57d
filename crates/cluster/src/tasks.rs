//! Questions of other nodes to this node's data plane.

use crate::frame::{AnswerError, Answered, Task};
use stentor_hub::Rooms;
use stentor_ports::{Acknowledged, Command, Done};

/// Returns a callback that passes an answer to `reply`, as the variant `kind`.
pub(crate) fn done<T: 'static>(
    reply: impl FnOnce(Result<Answered, AnswerError>) + Send + 'static,
    kind: fn(T) -> Answered,
) -> Done<T> {
    Done::new(move |result| reply(result.map(kind).map_err(|_| AnswerError)))
}

/// The command for a task. `answered` makes the receiver of a call's acknowledgements. `None` if the task's list of rooms is invalid.
pub(crate) fn command(
    task: Task,
    answered: impl FnOnce(u64) -> Acknowledged,
    reply: impl FnOnce(Result<Answered, AnswerError>) + Send + 'static,
) -> Option<Command> {
    Some(match task {
        Task::Emit { event, data, volatile } => {
            Command::Emit { event, data, volatile, done: done(reply, Answered::Concerned) }
        }
        Task::Join(rooms) => {
            let rooms = Rooms::try_from(rooms).ok()?;
            Command::Join { rooms, done: done(reply, Answered::Concerned) }
        }
        Task::Leave(rooms) => {
            let rooms = Rooms::try_from(rooms).ok()?;
            Command::Leave { rooms, done: done(reply, Answered::Concerned) }
        }
        Task::Disconnect { close } => Command::Disconnect { close, done: done(reply, Answered::Concerned) },
        Task::Call { call, event, data, timeout } => {
            let (answered, done) = (answered(call), done(reply, Answered::Concerned));
            Command::Call { event, data, timeout, answered, done }
        }
        Task::List { limit } => Command::Sessions { limit, done: done(reply, Answered::Sessions) },
    })
}
