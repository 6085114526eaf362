//! The limits of `podvisor run`. Pod and container share them.

use proto_cri::v1;

use crate::size;

/// The least memory of a container, in bytes, as in Docker. A smaller number was meant to have a unit.
const MEMORY_MIN: i64 = 6 << 20;

/// The period of CPU quotas, in microseconds.
const PERIOD_US: i64 = 100_000;

/// Most CPUs of a VM.
const CPUS_MAX: f64 = 64.0;

/// Arguments for limits.
#[derive(Debug, clap::Args)]
pub(super) struct LimitArgs {
    /// Number of CPUs for the container, such as 2 or 1.5.
    #[arg(long, value_name = "N", value_parser = parse_cpus)]
    cpus: Option<Quota>,
    /// Memory limit of the container: a number of bytes, or a number with k, m or g.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<i64>,
}

/// CPU time in a period, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quota(i64);

impl LimitArgs {
    /// The limits. `None` if there are none.
    pub(super) fn resources(&self) -> Option<v1::LinuxContainerResources> {
        let (cpus, memory) = (self.cpus, self.memory);
        (cpus.is_some() || memory.is_some()).then(|| v1::LinuxContainerResources {
            cpu_period: PERIOD_US,
            cpu_quota: cpus.map_or(0, |quota| quota.0),
            memory_limit_in_bytes: memory.unwrap_or(0),
            ..Default::default()
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked before")]
fn parse_cpus(text: &str) -> Result<Quota, String> {
    match text.parse::<f64>() {
        Ok(cpus) if (0.01..=CPUS_MAX).contains(&cpus) => Ok(Quota((cpus * PERIOD_US as f64).round() as i64)),
        Ok(_) => Err(format!("from 0.01 to {CPUS_MAX} CPUs are possible")),
        Err(_) => Err("a number such as 2 or 1.5 is expected".into()),
    }
}

fn parse_memory(text: &str) -> Result<i64, String> {
    let bytes = size::parse(text)?;
    if bytes >= MEMORY_MIN { Ok(bytes) } else { Err(format!("{bytes} bytes are less than 6m, the least")) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parsed;

    fn quota(cpus: &str) -> i64 {
        parsed(&["--cpus", cpus, "image"]).unwrap().limits.resources().unwrap().cpu_quota
    }

    #[test]
    fn cpus_may_have_a_fraction() {
        assert_eq!([quota("2"), quota("1.5"), quota(".25"), quota("0.01")], [200_000, 150_000, 25_000, 1000]);
        for wrong in ["0", "-1", "65", "NaN", "inf", "two", ""] {
            let said = parsed(&[&format!("--cpus={wrong}"), "image"]).unwrap_err();
            assert!(said.contains("CPUs are possible") || said.contains("such as 2"), "{wrong}: {said}");
        }
    }

    #[test]
    fn memory_without_a_unit_is_in_bytes_and_too_little_is_refused() {
        let memory = |text| parsed(&["-m", text, "image"]).unwrap().limits.resources().unwrap();
        assert_eq!(memory("64m").memory_limit_in_bytes, 64 << 20);
        assert_eq!(memory("67108864").memory_limit_in_bytes, 64 << 20);
        let said = parsed(&["--memory", "64", "image"]).unwrap_err();
        assert!(said.contains("64 bytes are less than 6m"), "{said}");
    }

    #[test]
    fn without_limits_none_are_sent() {
        assert_eq!(parsed(&["image"]).unwrap().limits.resources(), None);
    }
}
