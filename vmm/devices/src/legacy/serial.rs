//! The 16550 serial port for the guest kernel's console output.
//!
//! The port owns its registers and only gives bytes to its sink: a pod's console has no input. A failing sink
//! loses the bytes. A sink must never block, because the vCPU waits for it.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use vm_superio::serial::NoEvents;
use vm_superio::{Serial as Port, Trigger};
use vmm_sys_util::eventfd::EventFd;

/// Number of the port's registers, from its base (0x3f8 for COM1).
pub const REGISTERS: u8 = 8;

/// The interrupt line, if there is one.
#[derive(Debug)]
struct Line(Option<EventFd>);

impl Trigger for Line {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |event| event.write(1))
    }
}

/// Registers of a saved port, as set by a driver. No byte is ever in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SerialSnapshot {
    divisor: [u8; 2],
    interrupt_enable: u8,
    line_control: u8,
    modem_control: u8,
    scratch: u8,
}

/// Offsets of registers, and the line control register's bit for mapping the divisor over the first two.
const DATA: u8 = 0;
const INTERRUPT_ENABLE: u8 = 1;
const LINE_CONTROL: u8 = 3;
const MODEM_CONTROL: u8 = 4;
const SCRATCH: u8 = 7;
const DIVISOR_ACCESS: u8 = 0x80;

/// A serial port with output to `W`.
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
    /// Returns a port that interrupts over `irq` when the driver asks for it (pin 4 for COM1), or never.
    pub fn new(sink: W, irq: Option<EventFd>) -> Self {
        Serial { port: Port::new(Line(irq), sink), lost: 0 }
    }

    /// The guest reads the register at `offset`. A register beyond the port reads as all ones, as on an empty
    /// bus.
    pub fn read(&mut self, offset: u8) -> u8 {
        if offset < REGISTERS { self.port.read(offset) } else { u8::MAX }
    }

    /// The guest writes the register at `offset`.
    pub fn write(&mut self, offset: u8, byte: u8) {
        if offset < REGISTERS && self.port.write(offset, byte).is_err() {
            self.lost += 1;
        }
    }

    /// Returns the current registers.
    pub fn save(&self) -> SerialSnapshot {
        let state = self.port.state();
        SerialSnapshot {
            divisor: [state.baud_divisor_low, state.baud_divisor_high],
            interrupt_enable: state.interrupt_enable,
            line_control: state.line_control,
            modem_control: state.modem_control,
            scratch: state.scratch,
        }
    }

    /// Restores saved registers, as if the driver had written them. A driver with interrupts enabled gets
    /// one.
    ///
    /// # Errors
    /// The line cannot be raised.
    pub fn restore(&mut self, saved: &SerialSnapshot) -> io::Result<()> {
        let [low, high] = saved.divisor;
        let writes = [
            (LINE_CONTROL, saved.line_control | DIVISOR_ACCESS),
            (DATA, low),
            (INTERRUPT_ENABLE, high),
            (LINE_CONTROL, saved.line_control & !DIVISOR_ACCESS),
            (INTERRUPT_ENABLE, saved.interrupt_enable),
            (MODEM_CONTROL, saved.modem_control),
            (SCRATCH, saved.scratch),
            (LINE_CONTROL, saved.line_control),
        ];
        let mut writes = writes.into_iter();
        writes.try_for_each(|(offset, byte)| self.port.write(offset, byte)).map_err(io::Error::other)
    }

    /// Returns the number of writes refused by the sink or the line so far.
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
    fn a_restored_port_is_set_as_the_saved_one_and_interrupts() {
        let mut saved = Serial::new(Vec::new(), None);
        for (offset, byte) in [(3, 0x83), (0, 1), (1, 2), (3, 0x03), (1, 0x02), (4, 0x0b), (7, 0x5a)] {
            saved.write(offset, byte);
        }
        let line = EventFd::new(EFD_NONBLOCK).unwrap();
        let mut restored = Serial::new(Vec::new(), Some(line.try_clone().unwrap()));
        restored.restore(&saved.save()).unwrap();
        assert_eq!(restored.save(), saved.save());
        assert_eq!((line.read().is_ok(), restored.sink().len()), (true, 0), "nothing is printed");
    }

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
