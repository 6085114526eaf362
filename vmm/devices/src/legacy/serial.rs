//! The 16550 serial port that the guest's kernel writes its console to.
//!
//! The port owns its registers and only gives bytes to its sink: nobody types into a pod's console. A sink
//! that fails loses the bytes; a sink must never block, since the vCPU waits for it.

use std::io::{self, Write};

use vm_superio::serial::NoEvents;
use vm_superio::{Serial as Port, Trigger};
use vmm_sys_util::eventfd::EventFd;

/// Registers that the port takes, from its base (0x3f8 for COM1).
pub const REGISTERS: u8 = 8;

/// The interrupt line, where there is one.
#[derive(Debug)]
struct Line(Option<EventFd>);

impl Trigger for Line {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |event| event.write(1))
    }
}

/// A serial port whose output goes to `W`.
pub struct Serial<W: Write> {
    port: Port<Line, NoEvents, W>,
    lost: u64,
}

impl<W: Write> std::fmt::Debug for Serial<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serial").field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl<W: Write> Serial<W> {
    /// A port that interrupts over `irq` when the driver asks for that (pin 4 for COM1), or never.
    pub fn new(sink: W, irq: Option<EventFd>) -> Self {
        Serial { port: Port::new(Line(irq), sink), lost: 0 }
    }

    /// The guest reads the register at `offset`. A register beyond the port reads as all ones, as on an empty bus.
    pub fn read(&mut self, offset: u8) -> u8 {
        if offset < REGISTERS { self.port.read(offset) } else { u8::MAX }
    }

    /// The guest writes the register at `offset`.
    pub fn write(&mut self, offset: u8, byte: u8) {
        if offset < REGISTERS && self.port.write(offset, byte).is_err() {
            self.lost += 1;
        }
    }

    /// Returns how many writes the sink or the line refused so far.
    #[cfg(test)]
    fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the sink.
    pub fn sink(&self) -> &W {
        self.port.writer()
    }
}

#[cfg(test)]
mod tests {
    use vmm_sys_util::eventfd::EFD_NONBLOCK;

    use super::*;

    #[test]
    fn bytes_reach_the_sink_and_the_port_is_always_ready() {
        let mut serial = Serial::new(Vec::new(), None);
        for byte in b"Linux\n" {
            assert_eq!(serial.read(5) & 0x60, 0x60);
            serial.write(0, *byte);
        }
        assert_eq!(serial.sink(), b"Linux\n");
    }

    #[test]
    fn an_interrupt_comes_when_the_driver_wants_it() {
        let irq = EventFd::new(EFD_NONBLOCK).unwrap();
        let mut serial = Serial::new(Vec::new(), Some(irq.try_clone().unwrap()));
        serial.write(0, b'a');
        assert!(irq.read().is_err());
        serial.write(1, 2);
        serial.write(0, b'b');
        assert!(irq.read().is_ok());
    }

    #[test]
    fn a_sink_that_fails_is_counted() {
        let mut room = [0u8; 1];
        let mut serial = Serial::new(&mut room[..], None);
        serial.write(0, b'a');
        serial.write(0, b'b');
        assert_eq!(serial.lost(), 1);
    }

    #[test]
    fn registers_beyond_the_port_are_not_there() {
        let mut serial = Serial::new(Vec::new(), None);
        for offset in REGISTERS..=u8::MAX {
            serial.write(offset, 1);
            assert_eq!(serial.read(offset), 0xff);
        }
        assert!(serial.sink().is_empty());
    }
}
