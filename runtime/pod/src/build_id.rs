//! The id of an installed file's build. Two files with one id are the same build, whatever their names and
//! times are. The module reads a few bytes of each file, and never writes.
//!
//! | file | id |
//! |---|---|
//! | an ELF program or kernel | its GNU build id, made from the content by the linker |
//! | an EROFS image | its UUID, made from the agent by `guest-image/root/build.sh` |
//! | any other, or without such an id | its size and modification time, so a copy counts as another build |

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadRef};

/// Place of an EROFS superblock in its image, in bytes (`EROFS_SUPER_OFFSET`, fs/erofs/erofs_fs.h).
const SUPERBLOCK: u64 = 1024;

/// First field of an EROFS superblock, little-endian (`EROFS_SUPER_MAGIC_V1`, include/uapi/linux/magic.h).
const MAGIC: [u8; 4] = 0xe0f5_e1e2_u32.to_le_bytes();

/// Place of the UUID's 16 bytes in a superblock (`struct erofs_super_block`, fs/erofs/erofs_fs.h).
const UUID: usize = 48;

/// Longest accepted GNU build id, in bytes: linkers make 8, 16 or 20.
const BUILD_ID_BYTES_MAX: usize = 64;

/// Returns the id of the file's build.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn of(file: &File) -> io::Result<String> {
    let metadata = file.metadata()?;
    if let Some(uuid) = erofs_uuid(file)? {
        return Ok(hex::encode(uuid));
    }
    // A file without ELF format, or a damaged one, has no build id. This is no error.
    if let Some(id) = elf_build_id(&ReadCache::new(file)) {
        return Ok(id);
    }
    Ok(format!("{}-{}.{:09}", metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

/// The UUID of an EROFS image; `None` for another kind of file, or an image without a UUID.
fn erofs_uuid(file: &File) -> io::Result<Option<[u8; 16]>> {
    let mut superblock = [0; UUID + 16];
    match file.read_exact_at(&mut superblock, SUPERBLOCK) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let uuid: [u8; 16] = superblock[UUID..].try_into().expect("16 bytes are left");
    Ok((superblock.starts_with(&MAGIC) && uuid != [0; 16]).then_some(uuid))
}

/// The GNU build id among the notes of an ELF file for 64 bits (gABI, "Note Section").
fn elf_build_id<'data>(data: impl ReadRef<'data>) -> Option<String> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, data).ok()? {
        let Ok(Some(mut notes)) = segment.notes(endian, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            let id = note.desc();
            let is_id = note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID;
            if is_id && (1..=BUILD_ID_BYTES_MAX).contains(&id.len()) {
                return Some(hex::encode(id));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn id(path: &Path) -> String {
        of(&File::open(path).unwrap()).unwrap()
    }

    /// An image with only its superblock.
    fn image(uuid: u8) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[1024..1028].copy_from_slice(&MAGIC);
        bytes[1024 + UUID..][..16].fill(uuid);
        bytes
    }

    /// A program with one segment of notes: a stranger's, and the build id.
    fn program(build_id: &[u8]) -> Vec<u8> {
        let note = |name: &[u8], kind: u32, desc: &[u8]| {
            let mut note = Vec::new();
            for number in [name.len(), desc.len(), kind as usize] {
                note.extend(u32::try_from(number).unwrap().to_le_bytes());
            }
            note.extend(name);
            note.extend(desc);
            note
        };
        let notes = [note(b"Xen\0", 3, &[9; 4]), note(b"GNU\0", 3, build_id)].concat();
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        bytes[16] = 2; // ET_EXEC
        bytes[18] = 62; // EM_X86_64
        bytes[20] = 1;
        bytes[32] = 64; // e_phoff
        bytes[52] = 64; // e_ehsize
        bytes[54] = 56; // e_phentsize
        bytes[56] = 1; // e_phnum
        let mut segment = [0; 56];
        segment[0] = 4; // PT_NOTE
        segment[8] = 120; // p_offset
        segment[32] = u8::try_from(notes.len()).unwrap(); // p_filesz
        segment[48] = 4; // p_align
        bytes.extend(segment);
        bytes.extend(notes);
        bytes
    }

    #[test]
    fn a_copy_of_a_program_or_an_image_is_the_same_build() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (name, content) in [("vmm", program(&[0xab; 20])), ("root", image(0xcd))] {
            fs::write(at(name), content).unwrap();
        }
        assert_eq!(id(&at("vmm")), "ab".repeat(20));
        assert_eq!(id(&at("root")), "cd".repeat(16));
        for name in ["vmm", "root"] {
            fs::write(at("copy"), fs::read(at(name)).unwrap()).unwrap();
            assert_eq!(id(&at("copy")), id(&at(name)));
        }
        fs::write(at("newer"), image(0xce)).unwrap();
        assert_ne!(id(&at("newer")), id(&at("root")));
    }

    #[test]
    fn this_program_has_the_build_id_that_its_linker_gave() {
        let id = id(Path::new("/proc/self/exe"));
        assert!(id.len() >= 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }

    #[test]
    fn a_file_without_an_id_is_known_by_its_size_and_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut seen = Vec::new();
        // A short file, an image without a UUID, a truncated ELF file, and a note with a length beyond the
        // file.
        let cut = program(&[1; 20])[..80].to_vec();
        let mut long = program(&[1; 20]);
        long[120 + 4..120 + 8].copy_from_slice(&u32::MAX.to_le_bytes());
        for (number, content) in [b"kernel".to_vec(), image(0), cut, long].into_iter().enumerate() {
            let path = dir.path().join(number.to_string());
            fs::write(&path, &content).unwrap();
            let id = id(&path);
            assert!(id.starts_with(&format!("{}-", content.len())), "{id}");
            seen.push(id);
        }
        seen.dedup();
        assert_eq!(seen.len(), 4);
    }
}
