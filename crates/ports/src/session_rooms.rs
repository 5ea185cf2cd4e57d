//! The rooms of a session, for the application behind the server.

use stentor_hub::Room;

/// Maximum size of the names of a session's rooms in bytes.
const BYTES_MAX: usize = 16 << 10;

/// The names of the rooms that a session is in, as many as the application receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRooms {
    /// The names.
    pub names: Vec<Box<str>>,
    /// `true` if the session is in further rooms.
    pub is_truncated: bool,
}

impl SessionRooms {
    /// Takes the names of at most `count_max` rooms, and at most 16 KiB of them. The room of all sockets of a namespace is
    /// left out.
    pub fn take<'a>(rooms: impl Iterator<Item = &'a Room>, count_max: usize) -> Self {
        let mut taken = Self::default();
        if count_max == 0 {
            return taken;
        }
        let mut bytes = 0;
        for room in rooms.filter(|room| !room.is_all_members()) {
            bytes += room.name().len();
            if taken.names.len() == count_max || bytes > BYTES_MAX {
                taken.is_truncated = true;
                break;
            }
            taken.names.push(room.name().into());
        }
        taken
    }
}

/// The rooms of a session, which are copied only for an authorizer that needs them: the answer may be known without them.
#[derive(Clone, Copy)]
pub struct LazyRooms<'a>(&'a dyn Fn(usize) -> SessionRooms);

impl<'a> LazyRooms<'a> {
    /// The rooms of a client that has no session.
    pub const NONE: LazyRooms<'static> =
        LazyRooms(&|_| SessionRooms { names: Vec::new(), is_truncated: false });

    /// The rooms that `take` returns, at most as many as its argument says.
    pub fn new(take: &'a dyn Fn(usize) -> SessionRooms) -> Self {
        Self(take)
    }

    /// Copies the names of at most `count_max` rooms.
    pub fn take(&self, count_max: usize) -> SessionRooms {
        (self.0)(count_max)
    }
}

crate::opaque_debug!(LazyRooms<'_>, "LazyRooms");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_short_names_are_taken() {
        let rooms = |lengths: &[usize]| -> Vec<Room> {
            let room = |(n, len): (usize, &usize)| Room::plain(&format!("{n:0len$}")).ok();
            lengths.iter().enumerate().filter_map(room).collect()
        };
        let check = |rooms: &[Room], count_max, names: usize, is_truncated| {
            let taken = SessionRooms::take(rooms.iter(), count_max);
            assert_eq!((taken.names.len(), taken.is_truncated), (names, is_truncated));
        };
        check(&rooms(&[1, 1, 1]), 0, 0, false);
        check(&rooms(&[1, 1, 1]), 2, 2, true);
        check(&rooms(&[1, 1, 1]), 3, 3, false);
        check(&rooms(&[256; 65]), 100, 64, true);
        check(&Room::all_members("/").into_iter().collect::<Vec<_>>(), 1, 0, false);
    }
}
