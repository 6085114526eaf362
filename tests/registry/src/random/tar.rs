//! Archives of different builders: names in their many forms, numbers, sparse files, and entries for only
//! some systems.

use super::Dice;

const BLOCK: usize = 512;
/// Bytes of a name in a header, and of the prefix before it.
const NAME_BYTES: usize = 100;
const PREFIX_BYTES: usize = 155;

/// An entry, before it is written in one of many ways.
pub(crate) struct Entry {
    pub(crate) kind: u8,
    pub(crate) path: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: (i64, u32),
    pub(crate) device: (u32, u32),
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) content: Vec<u8>,
}

/// A growing tar archive.
pub(crate) struct Tar {
    pub(crate) bytes: Vec<u8>,
}

/// A record of an extended header: its length counts its own digits.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [length.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

fn octal(field: &mut [u8], number: u64) {
    let text = format!("{number:0width$o}", width = field.len() - 1);
    assert!(text.len() < field.len(), "{number} in {} bytes", field.len());
    field[..text.len()].copy_from_slice(text.as_bytes());
}

/// The form of GNU tar for too large numbers.
fn binary(field: &mut [u8], number: u64) {
    field.fill(0);
    let from = field.len() - 8;
    field[from..].copy_from_slice(&number.to_be_bytes());
    field[0] |= 0x80;
}

fn header(kind: u8, is_gnu: bool) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[156] = kind;
    block[257..265].copy_from_slice(if is_gnu { b"ustar  \0" } else { b"ustar\x0000" });
    block
}

impl Tar {
    pub(crate) fn new() -> Tar {
        Tar { bytes: Vec::new() }
    }

    fn push(&mut self, mut block: [u8; BLOCK], content: &[u8]) {
        block[148..156].fill(b' ');
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        octal(&mut block[148..155], sum);
        self.bytes.extend(block);
        self.content(content);
    }

    fn content(&mut self, content: &[u8]) {
        self.bytes.extend(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }

    /// An entry about the next one, or about all.
    fn note(&mut self, kind: u8, content: &[u8]) {
        let mut block = header(kind, true);
        let name = b"././@LongLink";
        block[..name.len()].copy_from_slice(name);
        octal(&mut block[100..108], 0);
        octal(&mut block[124..136], content.len() as u64);
        self.push(block, content);
    }

    /// An entry found in no image.
    pub(crate) fn of_other_systems(&mut self, dice: &mut Dice) {
        match dice.below(4) {
            0 => self.note(b'g', &record(b"comment", b"of all entries")),
            1 => self.note(b'V', b""),
            2 => self.note(b'A', &dice.bytes(700)),
            _ => self.note(b'I', b"an inode"),
        }
    }

    /// Puts a path into the header, or before it.
    fn path(
        &mut self,
        block: &mut [u8; BLOCK],
        path: &[u8],
        is_gnu: bool,
        records: &mut Vec<u8>,
        dice: &mut Dice,
    ) {
        let cut = &path[..path.len().min(NAME_BYTES)];
        let slash = (1..=path.len().min(PREFIX_BYTES)).rev().find(|at| {
            path.get(*at) == Some(&b'/') && path.len() - at - 1 <= NAME_BYTES && *at + 1 < path.len()
        });
        match (dice.below(4), slash) {
            (0, Some(at)) if !is_gnu && path.len() > NAME_BYTES => {
                block[345..345 + at].copy_from_slice(&path[..at]);
                block[..path.len() - at - 1].copy_from_slice(&path[at + 1..]);
            }
            (1, _) => {
                records.extend(record(b"path", path));
                block[..4].copy_from_slice(b"name");
            }
            (2, _) => {
                self.note(b'L', &[path, b"\0"].concat());
                block[..cut.len()].copy_from_slice(cut);
            }
            _ if path.len() <= NAME_BYTES => block[..path.len()].copy_from_slice(path),
            _ => {
                records.extend(record(b"path", path));
                block[..cut.len()].copy_from_slice(cut);
            }
        }
    }

    fn numbers(
        &mut self,
        block: &mut [u8; BLOCK],
        entry: &Entry,
        is_gnu: bool,
        records: &mut Vec<u8>,
        dice: &mut Dice,
    ) {
        octal(&mut block[100..108], u64::from(entry.mode));
        for (field, key, id) in [(108..116, b"uid", entry.owner.0), (116..124, b"gid", entry.owner.1)] {
            match dice.below(3) {
                0 => records.extend(record(key, id.to_string().as_bytes())),
                1 if is_gnu => binary(&mut block[field], u64::from(id)),
                _ if id < 1 << 21 => octal(&mut block[field], u64::from(id)),
                _ => records.extend(record(key, id.to_string().as_bytes())),
            }
        }
        let (seconds, nanoseconds) = entry.mtime;
        if nanoseconds == 0 && (0..1 << 33).contains(&seconds) {
            octal(&mut block[136..148], seconds as u64);
        } else {
            // -1.25 is three quarters after the second before.
            let text = match (seconds, nanoseconds) {
                (seconds, 0) => seconds.to_string(),
                (seconds @ ..0, part) => format!("-{}.{:09}", -(seconds + 1), super::model::SECOND - part),
                (seconds, part) => format!("{seconds}.{part:09}"),
            };
            records.extend(record(b"mtime", text.as_bytes()));
        }
        if entry.device != (0, 0) {
            octal(&mut block[329..337], u64::from(entry.device.0));
            octal(&mut block[337..345], u64::from(entry.device.1));
        }
    }

    pub(crate) fn entry(&mut self, entry: &Entry, dice: &mut Dice) {
        let is_gnu = dice.once_in(2);
        let mut block = header(entry.kind, is_gnu);
        let mut records = Vec::new();
        let holes = holes(&entry.content);
        let sparse =
            if entry.kind == b'0' && !holes.is_empty() && dice.below(4) > 0 { 1 + dice.below(4) } else { 0 };
        // With a record of the file's own name the header may have any.
        if sparse == 4 {
            records.extend(record(b"GNU.sparse.name", &entry.path));
            block[..6].copy_from_slice(b"sparse");
        } else {
            self.path(&mut block, &entry.path, is_gnu || sparse == 1, &mut records, dice);
        }
        self.numbers(&mut block, entry, is_gnu, &mut records, dice);
        if !entry.link.is_empty() {
            match dice.below(3) {
                0 => self.note(b'K', &[&entry.link, &b"\0"[..]].concat()),
                1 if entry.link.len() <= NAME_BYTES => {
                    block[157..157 + entry.link.len()].copy_from_slice(&entry.link);
                }
                _ => records.extend(record(b"linkpath", &entry.link)),
            }
        }
        for (name, value) in &entry.xattrs {
            records.extend(record(&[b"SCHILY.xattr.", &name[..]].concat(), value));
        }
        let pieces = pieces(&entry.content, &holes);
        match sparse {
            0 => self.plain(block, entry, records, dice),
            1 => self.old_sparse(block, entry, &records, &pieces),
            form => self.new_sparse(form, block, entry, records, &pieces),
        }
    }

    /// Writes the known fields as an extended header.
    fn extended(&mut self, records: &[u8], kind: u8) {
        if !records.is_empty() {
            self.note(kind, records);
        }
    }

    fn plain(&mut self, mut block: [u8; BLOCK], entry: &Entry, mut records: Vec<u8>, dice: &mut Dice) {
        let size = entry.content.len() as u64;
        if size > 0 && dice.once_in(5) {
            records.extend(record(b"size", size.to_string().as_bytes()));
            octal(&mut block[124..136], 0);
        } else {
            octal(&mut block[124..136], size);
        }
        self.extended(&records, if dice.once_in(6) { b'X' } else { b'x' });
        self.push(block, &entry.content);
    }

    /// Type `S`: four pieces in the header, 21 in each block after it.
    fn old_sparse(
        &mut self,
        mut block: [u8; BLOCK],
        entry: &Entry,
        records: &[u8],
        pieces: &[(usize, usize)],
    ) {
        let stored = stored(&entry.content, pieces);
        self.extended(records, b'x');
        block[156] = b'S';
        block[257..265].copy_from_slice(b"ustar  \0");
        octal(&mut block[124..136], stored.len() as u64);
        octal(&mut block[483..495], entry.content.len() as u64);
        let put = |field: &mut [u8], (at, length): &(usize, usize)| {
            octal(&mut field[..12], *at as u64);
            octal(&mut field[12..24], *length as u64);
        };
        let (first, rest) = pieces.split_at(pieces.len().min(4));
        for (number, piece) in first.iter().enumerate() {
            put(&mut block[386 + 24 * number..], piece);
        }
        block[482] = u8::from(!rest.is_empty());
        self.push(block, b"");
        let mut chunks = rest.chunks(21).peekable();
        while let Some(chunk) = chunks.next() {
            let mut further = [0; BLOCK];
            for (number, piece) in chunk.iter().enumerate() {
                put(&mut further[24 * number..], piece);
            }
            further[504] = u8::from(chunks.peek().is_some());
            self.bytes.extend(further);
        }
        self.content(&stored);
    }

    /// The forms 0.0, 0.1 and 1.0 of extended headers.
    fn new_sparse(
        &mut self,
        form: usize,
        mut block: [u8; BLOCK],
        entry: &Entry,
        mut records: Vec<u8>,
        pieces: &[(usize, usize)],
    ) {
        let size = entry.content.len().to_string();
        let mut content = Vec::new();
        match form {
            2 => {
                records.extend(record(b"GNU.sparse.size", size.as_bytes()));
                records.extend(record(b"GNU.sparse.numblocks", pieces.len().to_string().as_bytes()));
                for (at, length) in pieces {
                    records.extend(record(b"GNU.sparse.offset", at.to_string().as_bytes()));
                    records.extend(record(b"GNU.sparse.numbytes", length.to_string().as_bytes()));
                }
            }
            3 => {
                let map: Vec<String> = pieces.iter().map(|(at, length)| format!("{at},{length}")).collect();
                records.extend(record(b"GNU.sparse.size", size.as_bytes()));
                records.extend(record(b"GNU.sparse.map", map.join(",").as_bytes()));
            }
            _ => {
                records.extend(record(b"GNU.sparse.major", b"1"));
                records.extend(record(b"GNU.sparse.minor", b"0"));
                records.extend(record(b"GNU.sparse.realsize", size.as_bytes()));
                content.extend(format!("{}\n", pieces.len()).bytes());
                content
                    .extend(pieces.iter().flat_map(|(at, length)| format!("{at}\n{length}\n").into_bytes()));
                content.resize(content.len().next_multiple_of(BLOCK), 0);
            }
        }
        content.extend(stored(&entry.content, pieces));
        octal(&mut block[124..136], content.len() as u64);
        self.extended(&records, b'x');
        self.push(block, &content);
    }

    /// Ends the archive, as some builders do and some do not.
    pub(crate) fn end(mut self, dice: &mut Dice) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + BLOCK * dice.one(&[&0, &1, &2, &20]), 0);
        self.bytes
    }
}

/// Runs of zeros in a file, each of at least 1 KiB: begin and end.
fn holes(content: &[u8]) -> Vec<(usize, usize)> {
    let (mut found, mut begin) = (Vec::new(), None);
    for (at, byte) in content.iter().chain(&[1]).enumerate() {
        match (begin, *byte == 0 && at < content.len()) {
            (None, true) => begin = Some(at),
            (Some(from), false) => {
                if at - from >= 1024 {
                    found.push((from, at));
                }
                begin = None;
            }
            _ => {}
        }
    }
    found
}

/// The pieces between the holes, as offset and length; GNU tar ends a map with an empty piece at the file's
/// end.
fn pieces(content: &[u8], holes: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    for (from, to) in holes {
        if *from > at {
            pieces.push((at, from - at));
        }
        at = *to;
    }
    pieces.push((at, content.len() - at));
    pieces
}

/// The bytes of all pieces.
fn stored(content: &[u8], pieces: &[(usize, usize)]) -> Vec<u8> {
    pieces.iter().flat_map(|(at, length)| &content[*at..at + length]).copied().collect()
}
