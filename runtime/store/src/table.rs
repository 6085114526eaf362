//! The tables of the store. Owns their names in the file; never opens one.

use redb::TableDefinition;

/// Unreadable values in their original bytes, by "table/key". Only people read them.
pub(crate) const QUARANTINE: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("quarantine");

/// A table: values by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Records of pods.
    PodRecords,
    /// Statuses of pods.
    PodStatuses,
    /// Records of containers.
    ContainerRecords,
    /// Statuses of containers.
    ContainerStatuses,
}

impl Table {
    /// Every table.
    pub const ALL: [Table; 4] =
        [Table::PodRecords, Table::PodStatuses, Table::ContainerRecords, Table::ContainerStatuses];

    /// Name in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Table::PodRecords => "pod_records",
            Table::PodStatuses => "pod_statuses",
            Table::ContainerRecords => "container_records",
            Table::ContainerStatuses => "container_statuses",
        }
    }

    pub(crate) fn definition(self) -> TableDefinition<'static, &'static str, &'static [u8]> {
        TableDefinition::new(self.name())
    }
}
