//! A slot's registers as the guest reads them: one page of memory, read-only for the guest. So reading a
//! register costs no exit. An interrupt costs no exit to user space, although the driver reads its reason
//! each time.
//!
//! The page has the values last put there, so each change of a register must be followed by a `put`. vCPU
//! threads put registers with the transport's lock held. Back ends put the reasons of an interrupt and, with
//! [`RegisterPage::renew_config`], the configuration, at any time. This module never reads the page back,
//! except for those two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use virtio_bindings::virtio_mmio::{
    VIRTIO_MMIO_CONFIG, VIRTIO_MMIO_CONFIG_GENERATION, VIRTIO_MMIO_INTERRUPT_STATUS,
};
use vm_memory::{MmapRegion, VolatileMemory as _};

use super::register::MMIO_BYTES;

/// Bytes of configuration in the page: more than any device's. All bytes behind them read as zero.
pub(super) const CONFIG_BYTES: usize = 256;

/// The page of one slot, and its lock for the configuration.
#[derive(Debug)]
pub struct RegisterPage {
    mapping: Arc<MmapRegion>,
    offset: usize,
    config: Mutex<()>,
}

impl RegisterPage {
    /// Returns the page with this number in a mapping. Its bytes are zero.
    ///
    /// # Panics
    /// The mapping ends before the page does.
    pub fn new(mapping: Arc<MmapRegion>, number: usize) -> RegisterPage {
        let bytes = MMIO_BYTES as usize;
        let offset = number * bytes;
        assert!(offset + bytes <= mapping.size(), "the page lies in the mapping");
        RegisterPage { mapping, offset, config: Mutex::new(()) }
    }

    /// Puts a register at this offset of the page, a multiple of 4.
    pub(super) fn put(&self, offset: u32, value: u32) {
        self.word(offset).store(value.to_le(), Ordering::Release);
    }

    /// Returns the pending reasons of an interrupt.
    pub(super) fn interrupt_status(&self) -> &AtomicU32 {
        self.word(VIRTIO_MMIO_INTERRUPT_STATUS)
    }

    /// Returns the generation of the configuration. Only [`put_config`](Self::put_config),
    /// [`renew_config`](Self::renew_config) and a restore change it.
    pub(super) fn generation(&self) -> &AtomicU32 {
        self.word(VIRTIO_MMIO_CONFIG_GENERATION)
    }

    /// Puts the configuration from `read`, without changing the generation. If a back end puts a newer one
    /// meanwhile, that one stays.
    pub(super) fn put_config(&self, read: impl Fn(&mut [u8])) {
        loop {
            let generation = self.generation().load(Ordering::Acquire);
            // Not under the lock: a device may hold its own lock for this, and a renewing back end holds it
            // too.
            let mut config = [0; CONFIG_BYTES];
            read(&mut config);
            let _lock = self.config.lock().unwrap_or_else(PoisonError::into_inner);
            if self.generation().load(Ordering::Acquire) == generation {
                return self.store_config(&config);
            }
        }
    }

    /// Puts a new configuration. A driver reading it meanwhile finds different generations before and after,
    /// and reads again. A driver starting in the middle may read a mixture, but it is interrupted for the
    /// change in any case.
    pub(super) fn renew_config(&self, config: &[u8]) {
        let _lock = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        self.generation().fetch_add(1, Ordering::AcqRel);
        self.store_config(config);
        self.generation().fetch_add(1, Ordering::AcqRel);
    }

    fn store_config(&self, config: &[u8]) {
        let mut whole = [0; CONFIG_BYTES];
        let known = config.len().min(CONFIG_BYTES);
        whole[..known].copy_from_slice(&config[..known]);
        for (offset, word) in (VIRTIO_MMIO_CONFIG..).step_by(4).zip(whole.as_chunks::<4>().0) {
            self.put(offset, u32::from_le_bytes(*word));
        }
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        let offset = self.offset + offset as usize;
        self.mapping.get_atomic_ref(offset).expect("the page lies in the mapping, and registers are aligned")
    }

    /// Copies the page's bytes at `offset`, as the guest would read them.
    #[cfg(test)]
    pub(crate) fn read(&self, offset: usize, data: &mut [u8]) {
        use vm_memory::Bytes as _;
        self.mapping.as_volatile_slice().read_slice(data, self.offset + offset).unwrap();
    }
}
