"""Describes the messages that kubectl sends in protobuf: the number of each field, its name in JSON, and its type.

    text  bytes  number  flag         left out when empty or zero
    optional number  optional flag    kept when set to zero or false
    texts  map  map of …  time        a list of texts, maps, a time; a dict is a message, a list a repeated message

Fields that this server does not need are not listed, and are skipped.
"""

Type = str | dict[int, tuple[str, "Type"]] | list[dict[int, tuple[str, "Type"]]]
Message = dict[int, tuple[str, Type]]

_TYPE: Message = {1: ("apiVersion", "text"), 2: ("kind", "text")}
ENVELOPE: Message = {1: ("typeMeta", _TYPE), 2: ("raw", "bytes")}

_OWNER: Message = {
    1: ("kind", "text"),
    3: ("name", "text"),
    4: ("uid", "text"),
    5: ("apiVersion", "text"),
    6: ("controller", "optional-flag"),
    7: ("blockOwnerDeletion", "optional-flag"),
}
_META: Message = {
    1: ("name", "text"),
    2: ("generateName", "text"),
    3: ("namespace", "text"),
    5: ("uid", "text"),
    6: ("resourceVersion", "text"),
    7: ("generation", "number"),
    8: ("creationTimestamp", "time"),
    9: ("deletionTimestamp", "time"),
    10: ("deletionGracePeriodSeconds", "optional-number"),
    11: ("labels", "map"),
    12: ("annotations", "map"),
    13: ("ownerReferences", [_OWNER]),
    14: ("finalizers", "texts"),
}


def _with_meta(**fields: tuple[int, Type]) -> Message:
    return {1: ("metadata", _META)} | {
        number: (name, type_) for name, (number, type_) in fields.items()
    }


# ---- authentication and authorization

_RESOURCE: Message = {
    1: ("namespace", "text"),
    2: ("verb", "text"),
    3: ("group", "text"),
    4: ("version", "text"),
    5: ("resource", "text"),
    6: ("subresource", "text"),
    7: ("name", "text"),
}
_PATH: Message = {1: ("path", "text"), 2: ("verb", "text")}
_SELF_ACCESS: Message = {1: ("resourceAttributes", _RESOURCE), 2: ("nonResourceAttributes", _PATH)}
_ACCESS: Message = {
    **_SELF_ACCESS,
    3: ("user", "text"),
    4: ("groups", "texts"),
    5: ("extra", "map-of-texts"),
    6: ("uid", "text"),
}
_BOUND: Message = {
    1: ("kind", "text"),
    2: ("apiVersion", "text"),
    3: ("name", "text"),
    4: ("uid", "text"),
}
_TOKEN_REQUEST: Message = {
    1: ("audiences", "texts"),
    3: ("boundObjectRef", _BOUND),
    4: ("expirationSeconds", "optional-number"),
}
_TOKEN_REVIEW: Message = {1: ("token", "text"), 2: ("audiences", "texts")}

# ---- roles

_RULE: Message = {
    1: ("verbs", "texts"),
    2: ("apiGroups", "texts"),
    3: ("resources", "texts"),
    4: ("resourceNames", "texts"),
    5: ("nonResourceURLs", "texts"),
}
_SUBJECT: Message = {
    1: ("kind", "text"),
    2: ("apiGroup", "text"),
    3: ("name", "text"),
    4: ("namespace", "text"),
}
_ROLE_REF: Message = {1: ("apiGroup", "text"), 2: ("kind", "text"), 3: ("name", "text")}
_ROLE = _with_meta(rules=(2, [_RULE]))
_BINDING = _with_meta(subjects=(2, [_SUBJECT]), roleRef=(3, _ROLE_REF))

# ---- certificates

_CERTIFICATE_SPEC: Message = {
    1: ("request", "bytes"),
    2: ("username", "text"),
    3: ("uid", "text"),
    4: ("groups", "texts"),
    5: ("usages", "texts"),
    6: ("extra", "map-of-texts"),
    7: ("signerName", "text"),
    8: ("expirationSeconds", "optional-number"),
}
_CERTIFICATE_CONDITION: Message = {
    1: ("type", "text"),
    2: ("reason", "text"),
    3: ("message", "text"),
    4: ("lastUpdateTime", "time"),
    5: ("lastTransitionTime", "time"),
    6: ("status", "text"),
}
_CERTIFICATE_STATUS: Message = {
    1: ("conditions", [_CERTIFICATE_CONDITION]),
    2: ("certificate", "bytes"),
}

# ---- what `kubectl create` creates

_REFERENCE: Message = {
    1: ("kind", "text"),
    2: ("namespace", "text"),
    3: ("name", "text"),
    4: ("uid", "text"),
    5: ("apiVersion", "text"),
    6: ("resourceVersion", "text"),
    7: ("fieldPath", "text"),
}
_NAMED: Message = {1: ("name", "text")}
_PRECONDITIONS: Message = {1: ("uid", "text"), 2: ("resourceVersion", "text")}
_DELETE_OPTIONS: Message = {
    1: ("gracePeriodSeconds", "optional-number"),
    2: ("preconditions", _PRECONDITIONS),
    3: ("orphanDependents", "optional-flag"),
    4: ("propagationPolicy", "text"),
    5: ("dryRun", "texts"),
}

MESSAGES: dict[str, Message] = {
    "SelfSubjectAccessReview": _with_meta(spec=(2, _SELF_ACCESS)),
    "SubjectAccessReview": _with_meta(spec=(2, _ACCESS)),
    "SelfSubjectRulesReview": _with_meta(spec=(2, {1: ("namespace", "text")})),
    "SelfSubjectReview": _with_meta(),
    "TokenReview": _with_meta(spec=(2, _TOKEN_REVIEW)),
    "TokenRequest": _with_meta(spec=(2, _TOKEN_REQUEST)),
    "Role": _ROLE,
    "ClusterRole": _ROLE,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "CertificateSigningRequest": _with_meta(
        spec=(2, _CERTIFICATE_SPEC), status=(3, _CERTIFICATE_STATUS)
    ),
    "Namespace": _with_meta(
        spec=(2, {1: ("finalizers", "texts")}), status=(3, {1: ("phase", "text")})
    ),
    "ServiceAccount": _with_meta(
        secrets=(2, [_REFERENCE]),
        imagePullSecrets=(3, [_NAMED]),
        automountServiceAccountToken=(4, "optional-flag"),
    ),
    "ConfigMap": _with_meta(
        data=(2, "map"), binaryData=(3, "map-of-bytes"), immutable=(4, "optional-flag")
    ),
    "Secret": _with_meta(
        data=(2, "map-of-bytes"),
        type=(3, "text"),
        stringData=(4, "map"),
        immutable=(5, "optional-flag"),
    ),
    "Eviction": _with_meta(deleteOptions=(2, _DELETE_OPTIONS)),
    "DeleteOptions": _DELETE_OPTIONS,
}
