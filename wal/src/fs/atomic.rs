//! How a small file is replaced so that a crash leaves the old one or the new one.

use std::io;
use std::path::Path;

use super::{Fs, write_all_at};

/// Replaces `path` with `bytes`: temporary file beside it, sync, rename, sync of the directory.
///
/// The temporary name is `path` with `.tmp` appended; one left behind by a crash is replaced.
///
/// # Errors
/// What the file system says; the old file is then still there unless the last sync failed.
pub fn write_file_atomically(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_os_string();
    name.push(".tmp");
    let tmp = dir.join(name);
    match fs.remove_file(&tmp) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = fs.create_new(&tmp)?;
    write_all_at(&*file, bytes, 0).map_err(|partial| partial.source)?;
    file.sync_all()?;
    drop(file);
    fs.rename(&tmp, path)?;
    fs.sync_dir(dir)
}
