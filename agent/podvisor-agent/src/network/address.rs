//! Parses the host's addresses. Pure.

use std::net::IpAddr;

use crate::network::error::NetworkError;

/// Parses "10.0.0.1" or "fd00::1".
pub(super) fn ip(text: &str) -> Result<IpAddr, NetworkError> {
    text.parse().map_err(|_| malformed("IP address", text))
}

/// Parses "10.0.0.0/8" or "fd00::1/64".
pub(super) fn cidr(text: &str) -> Result<(IpAddr, u8), NetworkError> {
    let wrong = || malformed("address with prefix", text);
    let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    if prefix > longest { Err(wrong()) } else { Ok((address, prefix)) }
}

/// Parses "aa:bb:cc:dd:ee:ff".
pub(super) fn mac(text: &str) -> Result<Vec<u8>, NetworkError> {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| if byte.len() == 2 { u8::from_str_radix(byte, 16).ok() } else { None })
        .collect::<Option<_>>()
        .ok_or_else(|| malformed("MAC address", text))?;
    if bytes.len() == 6 { Ok(bytes) } else { Err(malformed("MAC address", text)) }
}

fn malformed(what: &'static str, text: &str) -> NetworkError {
    NetworkError::Malformed { what, text: text.chars().take(64).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_are_read() {
        assert_eq!(cidr("10.88.0.5/16").unwrap(), ("10.88.0.5".parse().unwrap(), 16));
        assert_eq!(cidr("fd00::5/64").unwrap(), ("fd00::5".parse().unwrap(), 64));
        assert_eq!(mac("02:00:5e:10:00:ff").unwrap(), [2, 0, 0x5e, 0x10, 0, 0xff]);
    }

    #[test]
    fn bad_addresses_are_refused() {
        for text in ["", "10.0.0.1", "10.0.0.1/33", "fd00::/129", "10.0.0/8", "10.0.0.1/-1"] {
            assert!(cidr(text).is_err(), "{text}");
        }
        for text in ["", "02:00:5e:10:00", "02:00:5e:10:00:zz", "2:0:5e:10:0:1", "02:00:5e:10:00:ff:00"] {
            assert!(mac(text).is_err(), "{text}");
        }
    }
}
