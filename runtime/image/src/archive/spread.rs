//! Maps the stored bytes of a sparse file to its pieces. Owns the way from a header to the map; `sparse.rs`
//! has the map's forms.

use std::io::Read;

use tar::{EntryType, Header};

use super::{Archive, ArchiveError, BLOCK};
use crate::sparse::{self, Form, Lines};

impl<R: Read> Archive<R> {
    /// Adds the holes to the current file, if it is sparse. The archive holds `stored` bytes of it.
    pub(super) fn spread(
        &mut self,
        header: &Header,
        stored: u64,
        records: &sparse::Records,
    ) -> Result<(), ArchiveError> {
        let pieces = if header.entry_type() == EntryType::GNUSparse {
            let gnu =
                header.as_gnu().ok_or_else(|| self.broken("a sparse file without a header of GNU tar"))?;
            let mut map = Vec::new();
            sparse::add_headers(&mut map, &gnu.sparse).map_err(|reason| self.broken(reason))?;
            let mut goes_on = gnu.is_extended();
            while goes_on {
                let mut block = [0; BLOCK];
                if !self.read_block(&mut block)? {
                    return Err(self.broken("it ends within a header"));
                }
                let further = sparse::further(&block);
                sparse::add_headers(&mut map, &further.sparse).map_err(|reason| self.broken(reason))?;
                goes_on = further.is_extended();
            }
            let size = gnu.real_size().map_err(|error| self.broken(error.to_string()))?;
            sparse::pieces(&map, size, stored)
        } else {
            let Some(form) = records.form().map_err(|reason| self.broken(reason))? else { return Ok(()) };
            let size = records.size.ok_or_else(|| self.broken("a sparse file without its size"))?;
            match form {
                Form::InRecords => sparse::pieces(&records.map, size, stored),
                Form::BeforeContent => {
                    let map = self.read_map()?;
                    sparse::pieces(&map, size, self.stored_left())
                }
            }
        };
        self.pieces = pieces.map_err(|reason| self.broken(reason))?;
        Ok(())
    }

    /// Reads the map at the start of a sparse file's content.
    fn read_map(&mut self) -> Result<Vec<u64>, ArchiveError> {
        let (mut lines, mut block, mut whole) = (Lines::default(), [0; BLOCK], false);
        while !whole {
            self.content().read_exact(&mut block).map_err(|error| self.broken(error.to_string()))?;
            whole = lines.add(&block).map_err(|reason| self.broken(reason))?;
        }
        Ok(lines.into_map())
    }
}
