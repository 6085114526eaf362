//! RuntimeConfig: the driver of the pods' cgroups. The kubelet asks once, at its start, and lays out its
//! cgroups by the answer.

use proto_cri::v1;

use super::status::CgroupDriver;
use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn config(
    cri: &Cri,
    _: v1::RuntimeConfigRequest,
) -> Result<v1::RuntimeConfigResponse, Failure> {
    Ok(answer(cri.node.cgroup_driver))
}

/// Always with the Linux part. An answer without it means systemd, the enum's zero.
fn answer(driver: CgroupDriver) -> v1::RuntimeConfigResponse {
    let driver = match driver {
        CgroupDriver::Systemd => v1::CgroupDriver::Systemd,
        CgroupDriver::Cgroupfs => v1::CgroupDriver::Cgroupfs,
    };
    v1::RuntimeConfigResponse { linux: Some(v1::LinuxRuntimeConfiguration { cgroup_driver: driver.into() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroupfs_is_named_as_the_driver() {
        assert_eq!(answer(CgroupDriver::Cgroupfs).linux.unwrap().cgroup_driver, 1);
        assert_eq!(answer(CgroupDriver::Systemd).linux.unwrap().cgroup_driver, 0);
    }
}
