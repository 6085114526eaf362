//! PullImage: the answer is the image's id, as ListImages returns it.

use proto_cri::v1;
use runtime_image::{Credentials, Images};

use super::image_name;
use crate::error::Failure;

pub(crate) async fn pull(
    images: &Images,
    request: v1::PullImageRequest,
) -> Result<v1::PullImageResponse, Failure> {
    let name = image_name(request.image)?;
    let credentials = request.auth.map(credentials).transpose()?.flatten();
    let image = images.pull(&name, credentials).await?;
    Ok(v1::PullImageResponse { image_ref: image.id })
}

/// User and password, given apart or as base64 of `user:password` (the form of docker's config.json).
fn credentials(auth: v1::AuthConfig) -> Result<Option<Credentials>, Failure> {
    if !auth.identity_token.is_empty() || !auth.registry_token.is_empty() {
        return Err(Failure::invalid(
            "auth: identity and registry tokens are not supported, only a user with a password",
        ));
    }
    if !auth.username.is_empty() {
        return Ok(Some(Credentials { username: auth.username, password: auth.password }));
    }
    if auth.auth.is_empty() {
        return Ok(None);
    }
    // The message never repeats what was sent: it is a secret.
    let malformed = || Failure::invalid("auth.auth is not base64 of user:password");
    let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, auth.auth)
        .map_err(|_| malformed())?;
    let text = String::from_utf8(bytes).map_err(|_| malformed())?;
    let (username, password) = text.split_once(':').ok_or_else(malformed)?;
    // Old docker clients pad the password with NULs.
    Ok(Some(Credentials {
        username: username.to_owned(),
        password: password.trim_end_matches('\0').to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_auth_string_gives_user_and_password() {
        let auth = v1::AuthConfig { auth: "dXNlcjpwYTpzcw==".into(), ..Default::default() };
        let found = credentials(auth).unwrap().unwrap();
        assert_eq!((found.username.as_str(), found.password.as_str()), ("user", "pa:ss"));
    }

    #[test]
    fn an_empty_auth_means_anonymous() {
        assert!(credentials(v1::AuthConfig::default()).unwrap().is_none());
    }

    #[test]
    fn a_token_is_refused_and_a_malformed_secret_is_not_repeated() {
        assert!(credentials(v1::AuthConfig { registry_token: "t".into(), ..Default::default() }).is_err());
        let error =
            credentials(v1::AuthConfig { auth: "c2VjcmV0".into(), ..Default::default() }).err().unwrap();
        assert!(!error.to_string().contains("c2VjcmV0") && !error.to_string().contains("secret"));
    }
}
