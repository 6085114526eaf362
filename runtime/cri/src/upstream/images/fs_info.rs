//! ImageFsInfo: the space of both stores in one entry. A kubelet only reads the first entry, so both stores
//! must be on one file system. The daemon's check reports it if they are not.

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;
use tonic::{Request, Response, Status};
use tracing::warn;

use super::super::link::{reason, unary};
use super::super::route::Call;
use super::super::sides::Sides;
use super::decode;

impl Sides {
    pub(in super::super) async fn image_fs_info(
        &self,
        call: &Call,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let message = request.get_ref().clone();
        let answer = unary(self.ours.clone(), &call.path, request).await?;
        let link = &self.upstream.link;
        if !link.is_up() {
            return Ok(answer);
        }
        let theirs = match link.fetch(&call.upstream_path, Request::new(message)).await {
            Ok(theirs) => decode::<v1::ImageFsInfoResponse>(&theirs)?,
            Err(status) => {
                warn!(why = reason(&status), "the upstream runtime does not report its images' size");
                return Ok(answer);
            }
        };
        let mut ours: v1::ImageFsInfoResponse = decode(answer.get_ref())?;
        add(&mut ours.image_filesystems, theirs.image_filesystems);
        add(&mut ours.container_filesystems, theirs.container_filesystems);
        Ok(answer.map(|_| ours.encode_to_vec().into()))
    }
}

/// Adds the usage of the upstream's first entry to ours. Both are on one file system.
fn add(ours: &mut [v1::FilesystemUsage], theirs: Vec<v1::FilesystemUsage>) {
    let (Some(ours), Some(theirs)) = (ours.first_mut(), theirs.into_iter().next()) else { return };
    for (sum, more) in
        [(&mut ours.used_bytes, theirs.used_bytes), (&mut ours.inodes_used, theirs.inodes_used)]
    {
        let (Some(sum), Some(more)) = (sum.as_mut(), more) else { continue };
        sum.value = sum.value.saturating_add(more.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(bytes: u64, inodes: Option<u64>) -> v1::FilesystemUsage {
        let value = |value| v1::UInt64Value { value };
        v1::FilesystemUsage {
            used_bytes: Some(value(bytes)),
            inodes_used: inodes.map(value),
            ..Default::default()
        }
    }

    #[test]
    fn the_space_of_both_stores_is_one_sum() {
        let mut ours = [usage(10, Some(1))];
        add(&mut ours, vec![usage(5, None)]);
        add(&mut ours, Vec::new());
        add(&mut [], vec![usage(5, None)]);
        assert_eq!(ours, [usage(15, Some(1))]);
    }
}
