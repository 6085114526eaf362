//! ListMetricDescriptors: the metrics that ListPodSandboxMetrics gives, and their labels.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn metric_descriptors(
    _: &Cri,
    _: v1::ListMetricDescriptorsRequest,
) -> Result<v1::ListMetricDescriptorsResponse, Failure> {
    Err(Failure::Absent("ListMetricDescriptors"))
}
