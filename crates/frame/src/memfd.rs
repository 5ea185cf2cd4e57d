//! Files in memory whose content can't be changed.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;

/// Maximum number of memfds of the process: an eighth of RLIMIT_NOFILE.
pub(crate) fn count_max() -> usize {
    // If RLIMIT_NOFILE is unlimited, only `FILE_FRAMES_MAX` applies.
    getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |max| usize::try_from(max / 8).unwrap_or(usize::MAX))
}

/// Writes a memfd, and seals it.
pub(crate) fn sealed(parts: &[&[u8]]) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Since Linux 6.3, a memfd without a flag for execution is logged as a warning. Older kernels lack the flag.
    let fd = match memfd_create(c"frame", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(c"frame", flags)?,
        result => result?,
    };
    let mut file = File::from(fd);
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut left = &mut slices[..];
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match file.write_vectored(left)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => IoSlice::advance_slices(&mut left, written),
        }
    }
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(file)
}

/// Reads a part of a memfd.
pub(crate) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(bytes, offset)
}
