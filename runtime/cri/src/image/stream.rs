//! StreamImages: ListImages in pieces.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::{Streamed, in_pieces};

pub(crate) async fn stream(
    cri: &Cri,
    request: v1::StreamImagesRequest,
) -> Result<Streamed<v1::StreamImagesResponse>, Failure> {
    let listed = super::list::list(&cri.images, v1::ListImagesRequest { filter: request.filter });
    Ok(in_pieces(listed.images, |images| v1::StreamImagesResponse { images }))
}
