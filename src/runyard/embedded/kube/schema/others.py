"""Every built-in kind but Pods: members of each type, in `schema.model`'s notation."""

OTHERS = """
Taint = key:s! value effect:s! timeAdded:*t
ConfigMapNodeConfigSource = namespace:s! name:s! uid resourceVersion kubeletConfigKey:s!
NodeConfigSource = configMap:*ConfigMapNodeConfigSource
NodeSpec = podCIDR podCIDRs:[s=]+ providerID unschedulable:b taints:[Taint]
    configSource:*NodeConfigSource externalID
NodeCondition = type:s! status:s! lastHeartbeatTime:t lastTransitionTime:t reason message
NodeAddress = type:s! address:s!
DaemonEndpoint = Port:i!
NodeDaemonEndpoints = kubeletEndpoint:DaemonEndpoint
NodeSwapStatus = capacity:*l
NodeSystemInfo = machineID:s! systemUUID:s! bootID:s! kernelVersion:s! osImage:s!
    containerRuntimeVersion:s! kubeletVersion:s! kubeProxyVersion:s! operatingSystem:s!
    architecture:s! swap:*NodeSwapStatus
ContainerImage = names:[s]! sizeBytes:l
AttachedVolume = name:s! devicePath:s!
NodeConfigStatus = assigned:*NodeConfigSource active:*NodeConfigSource
    lastKnownGood:*NodeConfigSource error
NodeRuntimeHandlerFeatures = recursiveReadOnlyMounts:*b userNamespaces:*b
NodeRuntimeHandler = name:s! features:*NodeRuntimeHandlerFeatures
NodeFeatures = supplementalGroupsPolicy:*b
NodeStatus = capacity:{q} allocatable:{q} phase conditions:[NodeCondition|type]
    addresses:[NodeAddress|type] daemonEndpoints:NodeDaemonEndpoints nodeInfo:NodeSystemInfo
    images:[ContainerImage] volumesInUse:[s] volumesAttached:[AttachedVolume]
    config:*NodeConfigStatus runtimeHandlers:[NodeRuntimeHandler] features:*NodeFeatures
    declaredFeatures:[s]
Node = kind apiVersion metadata:ObjectMeta spec:NodeSpec status:NodeStatus
NamespaceSpec = finalizers:[s]
NamespaceCondition = type:s! status:s! lastTransitionTime:t reason message
NamespaceStatus = phase conditions:[NamespaceCondition|type]
Namespace = kind apiVersion metadata:ObjectMeta spec:NamespaceSpec status:NamespaceStatus
ObjectReference@ = kind namespace name uid apiVersion resourceVersion fieldPath
ServiceAccount = kind apiVersion metadata:ObjectMeta secrets:[ObjectReference|name]
    imagePullSecrets:[LocalObjectReference] automountServiceAccountToken:*b
Secret = kind apiVersion metadata:ObjectMeta immutable:*b data:{y} stringData:{s} type
ConfigMap = kind apiVersion metadata:ObjectMeta immutable:*b data:{s} binaryData:{y}
EventSource = component host
EventSeries = count:i lastObservedTime:u
Event = kind apiVersion metadata:ObjectMeta involvedObject:ObjectReference reason message
    source:EventSource firstTimestamp:t lastTimestamp:t count:i type eventTime:u series:*EventSeries
    action related:*ObjectReference reportingComponent:s! reportingInstance:s!
Binding = kind apiVersion metadata:ObjectMeta target:ObjectReference
LeaseSpec = holderIdentity:*s leaseDurationSeconds:*i acquireTime:*u renewTime:*u
    leaseTransitions:*i strategy:*s preferredHolder:*s
Lease = kind apiVersion metadata:ObjectMeta spec:LeaseSpec
Overhead = podFixed:{q}
Scheduling = nodeSelector:{s}@ tolerations:[Toleration]
RuntimeClass = kind apiVersion metadata:ObjectMeta handler:s! overhead:*Overhead
    scheduling:*Scheduling
PolicyRule = verbs:[s]! apiGroups:[s] resources:[s] resourceNames:[s] nonResourceURLs:[s]
Role = kind apiVersion metadata:ObjectMeta rules:[PolicyRule]!
Subject@ = kind:s! apiGroup name:s! namespace
RoleRef@ = apiGroup:s! kind:s! name:s!
RoleBinding = kind apiVersion metadata:ObjectMeta subjects:[Subject] roleRef:RoleRef
AggregationRule = clusterRoleSelectors:[LabelSelector]
ClusterRole = kind apiVersion metadata:ObjectMeta rules:[PolicyRule]!
    aggregationRule:*AggregationRule
ClusterRoleBinding = kind apiVersion metadata:ObjectMeta subjects:[Subject] roleRef:RoleRef
CertificateSigningRequestSpec = request:y! signerName:s! expirationSeconds:*i usages:[s] username
    uid groups:[s] extra:{[s]}
CertificateSigningRequestCondition = type:s! status:s! reason message lastUpdateTime:t
    lastTransitionTime:t
CertificateSigningRequestStatus = conditions:[CertificateSigningRequestCondition|type]-
    certificate:y
CertificateSigningRequest = kind apiVersion metadata:ObjectMeta spec:CertificateSigningRequestSpec
    status:CertificateSigningRequestStatus
TokenReviewSpec = token audiences:[s]
UserInfo = username uid groups:[s] extra:{[s]}
TokenReviewStatus = authenticated:b user:UserInfo audiences:[s] error
TokenReview = kind apiVersion metadata:ObjectMeta spec:TokenReviewSpec status:TokenReviewStatus
BoundObjectReference = kind apiVersion name uid
TokenRequestSpec = audiences:[s]! expirationSeconds:*l boundObjectRef:*BoundObjectReference
TokenRequestStatus = token:s! expirationTimestamp:t!
TokenRequest = kind apiVersion metadata:ObjectMeta spec:TokenRequestSpec status:TokenRequestStatus
SelfSubjectReviewStatus = userInfo:UserInfo
SelfSubjectReview = kind apiVersion metadata:ObjectMeta status:SelfSubjectReviewStatus
FieldSelectorRequirement = key:s! operator:s! values:[s]
FieldSelectorAttributes = rawSelector requirements:[FieldSelectorRequirement]
LabelSelectorAttributes = rawSelector requirements:[LabelSelectorRequirement]
ResourceAttributes = namespace verb group version resource subresource name
    fieldSelector:*FieldSelectorAttributes labelSelector:*LabelSelectorAttributes
NonResourceAttributes = path verb
SubjectAccessReviewSpec = resourceAttributes:*ResourceAttributes
    nonResourceAttributes:*NonResourceAttributes user groups:[s] extra:{[s]} uid
SubjectAccessReviewStatus = allowed:b! denied:b reason evaluationError
SubjectAccessReview = kind apiVersion metadata:ObjectMeta spec:SubjectAccessReviewSpec
    status:SubjectAccessReviewStatus
SelfSubjectAccessReviewSpec = resourceAttributes:*ResourceAttributes
    nonResourceAttributes:*NonResourceAttributes
SelfSubjectAccessReview = kind apiVersion metadata:ObjectMeta spec:SelfSubjectAccessReviewSpec
    status:SubjectAccessReviewStatus
SelfSubjectRulesReviewSpec = namespace
ResourceRule = verbs:[s]! apiGroups:[s] resources:[s] resourceNames:[s]
NonResourceRule = verbs:[s]! nonResourceURLs:[s]
SubjectRulesReviewStatus = resourceRules:[ResourceRule]! nonResourceRules:[NonResourceRule]!
    incomplete:b! evaluationError
SelfSubjectRulesReview = kind apiVersion metadata:ObjectMeta spec:SelfSubjectRulesReviewSpec
    status:SubjectRulesReviewStatus
Preconditions = uid:*s resourceVersion:*s
DeleteOptions = gracePeriodSeconds:*l preconditions:*Preconditions orphanDependents:*b
    propagationPolicy:*s dryRun:[s] ignoreStoreReadErrorWithClusterBreakingPotential:*b
Eviction = kind apiVersion metadata:ObjectMeta deleteOptions:*DeleteOptions
CustomResourceDefinitionNames = plural:s! singular shortNames:[s] kind:s! listKind categories:[s]
CustomResourceValidation = openAPIV3Schema:*any
CustomResourceSubresourceStatus =
CustomResourceSubresourceScale = specReplicasPath:s! statusReplicasPath:s! labelSelectorPath:*s
CustomResourceSubresources = status:*CustomResourceSubresourceStatus
    scale:*CustomResourceSubresourceScale
CustomResourceColumnDefinition = name:s! type:s! format description priority:i jsonPath:s!
SelectableField = jsonPath:s!
CustomResourceDefinitionVersion = name:s! served:b! storage:b! deprecated:b deprecationWarning:*s
    schema:*CustomResourceValidation subresources:*CustomResourceSubresources
    additionalPrinterColumns:[CustomResourceColumnDefinition] selectableFields:[SelectableField]
ServiceReference = namespace:s! name:s! path:*s port:*i
WebhookClientConfig = url:*s service:*ServiceReference caBundle:y
WebhookConversion = clientConfig:*WebhookClientConfig conversionReviewVersions:[s]!
CustomResourceConversion = strategy:s! webhook:*WebhookConversion
CustomResourceDefinitionSpec = group:s! names:CustomResourceDefinitionNames scope:s!
    versions:[CustomResourceDefinitionVersion]! conversion:*CustomResourceConversion
    preserveUnknownFields:b
CustomResourceDefinitionCondition = type:s! status:s! lastTransitionTime:t reason message
    observedGeneration:l
CustomResourceDefinitionStatus = conditions:[CustomResourceDefinitionCondition|type]-!
    acceptedNames:CustomResourceDefinitionNames storedVersions:[s]! observedGeneration:l
CustomResourceDefinition = kind apiVersion metadata:ObjectMeta spec:CustomResourceDefinitionSpec
    status:CustomResourceDefinitionStatus
"""
