//! ListMetricDescriptors: the possible metrics of ListPodSandboxMetrics, with their labels.

use proto_cri::v1;

use crate::error::Failure;
use crate::metrics;
use crate::serve::Cri;

pub(crate) async fn metric_descriptors(
    _: &Cri,
    _: v1::ListMetricDescriptorsRequest,
) -> Result<v1::ListMetricDescriptorsResponse, Failure> {
    Ok(v1::ListMetricDescriptorsResponse { descriptors: metrics::descriptors() })
}
