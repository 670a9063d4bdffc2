//! The simulated disk: files and directories with what is durable, what is seen, and what is pending between them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::fs::{DirEntry, EntryKind};

/// Which file or directory; 0 is the root.
pub(super) type Inode = usize;

#[derive(Clone)]
pub(super) struct Disk {
    pub(super) nodes: Vec<Node>,
    /// The order of pending changes over all nodes.
    sequence: u64,
    pub(super) operations: u64,
    pub(super) faults: Faults,
    pub(super) locks: BTreeSet<PathBuf>,
}

#[derive(Clone, Default)]
pub(super) struct Faults {
    pub(super) stop_before: Option<u64>,
    pub(super) fail: Option<(u64, io::ErrorKind)>,
    pub(super) write_limit_bytes: Option<usize>,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) write_budget_bytes: Option<u64>,
}

#[derive(Clone)]
pub(super) enum Node {
    File(FileNode),
    Dir(DirNode),
}

#[derive(Clone, Default)]
pub(super) struct FileNode {
    pub(super) durable: Arc<Vec<u8>>,
    pub(super) current: Arc<Vec<u8>>,
    pub(super) pending: Vec<(u64, FileOp)>,
    /// A failed sync has forgotten changes: `durable` with `pending` is no longer `current`.
    has_lost_changes: bool,
}

#[derive(Clone)]
pub(super) enum FileOp {
    Write { offset: u64, bytes: Arc<[u8]> },
    SetLen(u64),
}

#[derive(Clone, Default)]
pub(super) struct DirNode {
    pub(super) durable: BTreeMap<String, Inode>,
    pub(super) current: BTreeMap<String, Inode>,
    pub(super) pending: Vec<(u64, DirOp)>,
}

#[derive(Clone)]
pub(super) enum DirOp {
    Link { name: String, inode: Inode },
    Unlink { name: String },
    Rename { from: String, to: String },
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            nodes: vec![Node::Dir(DirNode::default())],
            sequence: 0,
            operations: 0,
            faults: Faults::default(),
            locks: BTreeSet::new(),
        }
    }
}

impl FileNode {
    pub(super) fn at_rest(bytes: Arc<Vec<u8>>) -> Self {
        Self { durable: Arc::clone(&bytes), current: bytes, ..Self::default() }
    }
}

impl FileOp {
    pub(super) fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => write(file, *offset as usize, bytes),
            Self::SetLen(len) => file.resize(*len as usize, 0),
        }
    }
}

pub(super) fn write(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if file.len() < offset {
        file.resize(offset, 0);
    }
    let overwritten = bytes.len().min(file.len() - offset);
    file[offset..offset + overwritten].copy_from_slice(&bytes[..overwritten]);
    file.extend_from_slice(&bytes[overwritten..]);
}

impl DirOp {
    pub(super) fn apply(&self, names: &mut BTreeMap<String, Inode>) {
        match self {
            Self::Link { name, inode } => drop(names.insert(name.clone(), *inode)),
            Self::Unlink { name } => drop(names.remove(name)),
            Self::Rename { from, to } => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }
}

impl Disk {
    /// Counts an operation, and fails where it must.
    pub(super) fn operate(&mut self) -> io::Result<()> {
        if self.is_stopped() {
            return Err(io::Error::other("the machine has stopped"));
        }
        let number = self.operations;
        self.operations += 1;
        match self.faults.fail {
            Some((at, kind)) if at == number => Err(kind.into()),
            _ => Ok(()),
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.faults.stop_before.is_some_and(|number| self.operations >= number)
    }

    pub(super) fn restarted(&self) -> Self {
        let mut nodes: Vec<Node> = self.nodes.iter().map(|_| Node::File(FileNode::default())).collect();
        // What no name leads to ends with the process that had it open.
        let mut open = vec![0];
        while let Some(inode) = open.pop() {
            if let Node::Dir(dir) = &self.nodes[inode] {
                let names = dir.durable.values().chain(dir.current.values());
                let links = dir.pending.iter().filter_map(|(_, op)| match op {
                    DirOp::Link { inode, .. } => Some(inode),
                    DirOp::Unlink { .. } | DirOp::Rename { .. } => None,
                });
                open.extend(names.chain(links));
            }
            nodes[inode] = self.nodes[inode].clone();
        }
        Self { nodes, sequence: self.sequence, ..Self::default() }
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<Inode> {
        let mut inode = 0;
        for component in path.components() {
            if let Component::Normal(name) = component {
                let name = name.to_str().ok_or(io::ErrorKind::InvalidInput)?;
                inode = *self.dir(inode)?.current.get(name).ok_or(io::ErrorKind::NotFound)?;
            }
        }
        Ok(inode)
    }

    fn find_parent(&self, path: &Path) -> io::Result<(Inode, String)> {
        let parent = self.find(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok((parent, name.to_owned()))
    }

    pub(super) fn file(&self, inode: Inode) -> io::Result<&FileNode> {
        match self.nodes.get(inode) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn file_mut(&mut self, inode: Inode) -> io::Result<&mut FileNode> {
        match self.nodes.get_mut(inode) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn dir(&self, inode: Inode) -> io::Result<&DirNode> {
        match self.nodes.get(inode) {
            Some(Node::Dir(dir)) => Ok(dir),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn dir_mut(&mut self, inode: Inode) -> io::Result<&mut DirNode> {
        match self.nodes.get_mut(inode) {
            Some(Node::Dir(dir)) => Ok(dir),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn change_file(&mut self, inode: Inode, op: FileOp) -> io::Result<()> {
        self.sequence += 1;
        let sequence = self.sequence;
        let file = self.file_mut(inode)?;
        op.apply(Arc::make_mut(&mut file.current));
        file.pending.push((sequence, op));
        Ok(())
    }

    fn change_dir(&mut self, inode: Inode, op: DirOp) -> io::Result<()> {
        self.sequence += 1;
        let sequence = self.sequence;
        let dir = self.dir_mut(inode)?;
        op.apply(&mut dir.current);
        dir.pending.push((sequence, op));
        Ok(())
    }

    pub(super) fn create(&mut self, path: &Path, is_dir: bool) -> io::Result<Inode> {
        let (parent, name) = self.find_parent(path)?;
        if self.dir(parent)?.current.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = self.nodes.len();
        self.nodes.push(if is_dir { Node::Dir(DirNode::default()) } else { Node::File(FileNode::default()) });
        self.change_dir(parent, DirOp::Link { name, inode })?;
        Ok(inode)
    }

    /// Within one directory, which is all the log does.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.find(from)?;
        let ((parent, from), (other, to)) = (self.find_parent(from)?, self.find_parent(to)?);
        if parent != other {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        self.change_dir(parent, DirOp::Rename { from, to })
    }

    pub(super) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        self.file(self.find(path)?)?;
        let (parent, name) = self.find_parent(path)?;
        self.change_dir(parent, DirOp::Unlink { name })
    }

    pub(super) fn sync_file(&mut self, inode: Inode) -> io::Result<()> {
        let file = self.file_mut(inode)?;
        let pending = std::mem::take(&mut file.pending);
        if file.has_lost_changes {
            for (_, op) in pending {
                op.apply(Arc::make_mut(&mut file.durable));
            }
        } else {
            file.durable = Arc::clone(&file.current);
        }
        Ok(())
    }

    /// The pages are clean now, whatever is on the disk.
    pub(super) fn forget_pending(&mut self, inode: Inode) -> io::Result<()> {
        let file = self.file_mut(inode)?;
        file.has_lost_changes |= !file.pending.is_empty();
        file.pending.clear();
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, inode: Inode) -> io::Result<()> {
        let dir = self.dir_mut(inode)?;
        for (_, op) in std::mem::take(&mut dir.pending) {
            op.apply(&mut dir.durable);
        }
        Ok(())
    }

    pub(super) fn list(&self, inode: Inode) -> io::Result<Vec<DirEntry>> {
        let entry = |(name, &inode): (&String, &Inode)| DirEntry {
            name: name.clone(),
            kind: if matches!(self.nodes[inode], Node::Dir(_)) { EntryKind::Dir } else { EntryKind::File },
        };
        Ok(self.dir(inode)?.current.iter().map(entry).collect())
    }

    /// How many of `wanted` bytes a write at `offset` may write, which uses up the budget for them.
    pub(super) fn room_for_write(&mut self, inode: Inode, offset: u64, wanted: usize) -> io::Result<usize> {
        let mut count = wanted.min(self.faults.write_limit_bytes.unwrap_or(usize::MAX)) as u64;
        let len = self.file(inode)?.current.len() as u64;
        let grown = (offset + count).saturating_sub(len);
        count -= grown.saturating_sub(self.free_bytes()).min(count);
        if let Some(budget) = &mut self.faults.write_budget_bytes {
            count = count.min(*budget);
            *budget -= count;
        }
        Ok(count as usize)
    }

    pub(super) fn free_bytes(&self) -> u64 {
        let Some(capacity) = self.faults.capacity_bytes else { return u64::MAX };
        let used: usize = self.files().iter().map(|(_, bytes)| bytes.len()).sum();
        capacity.saturating_sub(used as u64)
    }

    pub(super) fn files(&self) -> Vec<(PathBuf, Arc<Vec<u8>>)> {
        let mut files = Vec::new();
        let mut open = vec![(PathBuf::from("/"), 0)];
        while let Some((path, inode)) = open.pop() {
            match &self.nodes[inode] {
                Node::File(file) => files.push((path, Arc::clone(&file.current))),
                Node::Dir(dir) => open.extend(dir.current.iter().map(|(name, &inode)| (path.join(name), inode))),
            }
        }
        files.sort();
        files
    }

    pub(super) fn overwrite(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let inode = match self.find(path) {
            Ok(inode) => inode,
            Err(_) => self.create(path, false)?,
        };
        *self.file_mut(inode)? = FileNode::at_rest(Arc::new(bytes.to_vec()));
        self.sync_dir(self.find_parent(path)?.0)
    }

    pub(super) fn lose(&mut self, path: &Path) -> io::Result<()> {
        self.unlink(path)?;
        self.sync_dir(self.find_parent(path)?.0)
    }
}
