//! Sizes of memory, as `docker run` reads them (github.com/docker/go-units, `RAMInBytes`).

/// What a size is, for errors.
const FORM: &str = "a size is a number of bytes, or a number with k, m, g or t";

/// Parses a size such as `64m`, `1.5g` or `67108864` into bytes. Units are powers of 1024, in either case,
/// and may end with `b` or `ib`.
///
/// # Errors
/// The text is no size, or the size is zero or above 2⁶³ bytes.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "ki" | "kib" => 10,
        "m" | "mb" | "mi" | "mib" => 20,
        "g" | "gb" | "gi" | "gib" => 30,
        "t" | "tb" | "ti" | "tib" => 40,
        _ => return Err(FORM.into()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return Err(FORM.into());
    }
    let unit = 1_i64 << shift;
    let whole: i64 = whole.parse().map_err(|_| "out of range")?;
    let bytes = whole.checked_mul(unit).and_then(|bytes| bytes.checked_add(part(fraction, unit)));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "out of range".into())
}

/// These decimals of a unit, rounded down. Nine of them are more than a unit has bytes.
fn part(decimals: &str, unit: i64) -> i64 {
    let decimals: String = decimals.chars().chain(std::iter::repeat('0')).take(9).collect();
    let billionths = decimals.parse::<i128>().unwrap_or_default();
    i64::try_from(billionths * i128::from(unit) / 1_000_000_000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_docker_reads_them() {
        for (text, bytes) in [
            ("6291456", 6 << 20),
            ("64k", 64 << 10),
            ("64M", 64 << 20),
            ("64mb", 64 << 20),
            ("2Gi", 2 << 30),
            ("1.5g", 3 << 29),
            ("0.5 GiB", 1 << 29),
            ("1t", 1 << 40),
            ("7b", 7),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "k", "-1m", "5x", "1.2.3m", ".5g", "1e3", "m1", "٣m"] {
            assert_eq!(parse(text), Err(FORM.into()), "{text}");
        }
        for text in ["0", "0.0m", "9999999999999g", "99999999999999999999"] {
            assert_eq!(parse(text), Err("out of range".into()), "{text}");
        }
    }
}
