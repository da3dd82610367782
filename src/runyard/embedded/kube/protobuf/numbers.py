"""Numbers the fields of every message; written by tools/protobuf_numbers.py for Kubernetes 1.36.4.

Name = field field=number >Message ...      a field without a number has the next one; `>`: written in place
"""

NUMBERS = """
OwnerReference = kind name=3 uid apiVersion controller blockOwnerDeletion
ManagedFieldsEntry = manager operation apiVersion time fieldsType=6 fieldsV1 subresource
ObjectMeta = name generateName namespace selfLink uid resourceVersion generation creationTimestamp
    deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers
    managedFields=17
LabelSelectorRequirement = key operator values
LabelSelector = matchLabels matchExpressions
ContainerPort = name hostPort containerPort protocol hostIP
ConfigMapEnvSource = >LocalObjectReference optional
LocalObjectReference = name
SecretEnvSource = >LocalObjectReference optional
EnvFromSource = prefix configMapRef secretRef
ConfigMapKeySelector = >LocalObjectReference key optional
SecretKeySelector = >LocalObjectReference key optional
FileKeySelector = volumeName path key optional
EnvVarSource = fieldRef resourceFieldRef configMapKeyRef secretKeyRef fileKeyRef
EnvVar = name value valueFrom
ResourceClaim = name request
ResourceRequirements = limits requests claims
ContainerResizePolicy = resourceName restartPolicy
ContainerRestartRuleOnExitCodes = operator values
ContainerRestartRule = action exitCodes
VolumeMount = name readOnly mountPath subPath mountPropagation subPathExpr recursiveReadOnly
VolumeDevice = name devicePath
ExecAction = command
HTTPHeader = name value
HTTPGetAction = path port host scheme httpHeaders
TCPSocketAction = port host
GRPCAction = port service
Probe = >ProbeHandler initialDelaySeconds timeoutSeconds periodSeconds successThreshold
    failureThreshold terminationGracePeriodSeconds
ProbeHandler = exec httpGet tcpSocket grpc
SleepAction = seconds
LifecycleHandler = exec httpGet tcpSocket sleep
Lifecycle = postStart preStop stopSignal
Capabilities = add drop
SELinuxOptions = user role type level
WindowsSecurityContextOptions = gmsaCredentialSpecName gmsaCredentialSpec runAsUserName hostProcess
SeccompProfile = type localhostProfile
AppArmorProfile = type localhostProfile
SecurityContext = capabilities privileged seLinuxOptions runAsUser runAsNonRoot
    readOnlyRootFilesystem allowPrivilegeEscalation runAsGroup procMount windowsOptions
    seccompProfile appArmorProfile
Container = name image command args workingDir ports env resources volumeMounts livenessProbe
    readinessProbe lifecycle terminationMessagePath imagePullPolicy securityContext stdin stdinOnce
    tty envFrom terminationMessagePolicy volumeDevices startupProbe resizePolicy restartPolicy
    restartPolicyRules
EphemeralContainer = >EphemeralContainerCommon targetContainerName
EphemeralContainerCommon = name image command args workingDir ports env resources volumeMounts
    livenessProbe readinessProbe lifecycle terminationMessagePath imagePullPolicy securityContext
    stdin stdinOnce tty envFrom terminationMessagePolicy volumeDevices startupProbe resizePolicy
    restartPolicy restartPolicyRules
Sysctl = name value
PodSecurityContext = seLinuxOptions runAsUser runAsNonRoot supplementalGroups fsGroup runAsGroup
    sysctls windowsOptions fsGroupChangePolicy seccompProfile appArmorProfile
    supplementalGroupsPolicy seLinuxChangePolicy
NodeSelectorRequirement = key operator values
NodeSelectorTerm = matchExpressions matchFields
NodeSelector = nodeSelectorTerms
PreferredSchedulingTerm = weight preference
NodeAffinity = requiredDuringSchedulingIgnoredDuringExecution
    preferredDuringSchedulingIgnoredDuringExecution
PodAffinityTerm = labelSelector namespaces topologyKey namespaceSelector matchLabelKeys
    mismatchLabelKeys
WeightedPodAffinityTerm = weight podAffinityTerm
PodAffinity = requiredDuringSchedulingIgnoredDuringExecution
    preferredDuringSchedulingIgnoredDuringExecution
PodAntiAffinity = requiredDuringSchedulingIgnoredDuringExecution
    preferredDuringSchedulingIgnoredDuringExecution
Affinity = nodeAffinity podAffinity podAntiAffinity
Toleration = key operator value effect tolerationSeconds
HostAlias = ip hostnames
PodDNSConfigOption = name value
PodDNSConfig = nameservers searches options
PodReadinessGate = conditionType
TopologySpreadConstraint = maxSkew topologyKey whenUnsatisfiable labelSelector minDomains
    nodeAffinityPolicy nodeTaintsPolicy matchLabelKeys
PodOS = name
PodSchedulingGate = name
PodResourceClaim = name resourceClaimName=3 resourceClaimTemplateName
PodSchedulingGroup = podGroupName
PodSpec = volumes containers restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds
    dnsPolicy nodeSelector serviceAccountName serviceAccount nodeName hostNetwork hostPID hostIPC
    securityContext imagePullSecrets hostname subdomain affinity schedulerName initContainers
    automountServiceAccountToken tolerations hostAliases priorityClassName priority dnsConfig
    shareProcessNamespace readinessGates runtimeClassName enableServiceLinks preemptionPolicy
    overhead topologySpreadConstraints ephemeralContainers setHostnameAsFQDN os hostUsers
    schedulingGates resourceClaims resources hostnameOverride schedulingGroup=43
PodCondition = type status lastProbeTime lastTransitionTime reason message observedGeneration
HostIP = ip
PodIP = ip
ContainerStateWaiting = reason message
ContainerStateRunning = startedAt
ContainerStateTerminated = exitCode signal reason message startedAt finishedAt containerID
ContainerState = waiting running terminated
ImageVolumeStatus = imageRef
VolumeStatus = image
VolumeMountStatus = name mountPath readOnly recursiveReadOnly volumeStatus
LinuxContainerUser = uid gid supplementalGroups
ContainerUser = linux
ResourceHealth = resourceID health message=6
ResourceStatus = name resources
ContainerStatus = name state lastState ready restartCount image imageID containerID started
    allocatedResources resources volumeMounts user allocatedResourcesStatus stopSignal
PodResourceClaimStatus = name resourceClaimName
ContainerExtendedResourceRequest = containerName resourceName requestName
PodExtendedResourceClaimStatus = requestMappings resourceClaimName
NodeAllocatableResourceClaimStatus = resourceClaimName containers resources
PodStatus = phase conditions message reason hostIP podIP startTime containerStatuses qosClass
    initContainerStatuses nominatedNodeName podIPs ephemeralContainerStatuses resize
    resourceClaimStatuses hostIPs observedGeneration extendedResourceClaimStatus allocatedResources
    resources nodeAllocatableResourceClaimStatuses
Pod = metadata spec status
HostPathVolumeSource = path type
EmptyDirVolumeSource = medium sizeLimit
GCEPersistentDiskVolumeSource = pdName fsType partition readOnly
AWSElasticBlockStoreVolumeSource = volumeID fsType partition readOnly
GitRepoVolumeSource = repository revision directory
KeyToPath = key path mode
SecretVolumeSource = secretName items defaultMode optional
NFSVolumeSource = server path readOnly
ISCSIVolumeSource = targetPortal iqn lun iscsiInterface fsType readOnly portals chapAuthDiscovery
    secretRef=10 chapAuthSession initiatorName
GlusterfsVolumeSource = endpoints path readOnly
PersistentVolumeClaimVolumeSource = claimName readOnly
RBDVolumeSource = monitors image fsType pool user keyring secretRef readOnly
FlexVolumeSource = driver fsType secretRef readOnly options
CinderVolumeSource = volumeID fsType readOnly secretRef
CephFSVolumeSource = monitors path user secretFile secretRef readOnly
FlockerVolumeSource = datasetName datasetUUID
ObjectFieldSelector = apiVersion fieldPath
ResourceFieldSelector = containerName resource divisor
DownwardAPIVolumeFile = path fieldRef resourceFieldRef mode
DownwardAPIVolumeSource = items defaultMode
FCVolumeSource = targetWWNs lun fsType readOnly wwids
AzureFileVolumeSource = secretName shareName readOnly
ConfigMapVolumeSource = >LocalObjectReference items defaultMode optional
VsphereVirtualDiskVolumeSource = volumePath fsType storagePolicyName storagePolicyID
QuobyteVolumeSource = registry volume readOnly user group tenant
AzureDiskVolumeSource = diskName diskURI cachingMode fsType readOnly kind
PhotonPersistentDiskVolumeSource = pdID fsType
SecretProjection = >LocalObjectReference items optional=4
DownwardAPIProjection = items
ConfigMapProjection = >LocalObjectReference items optional=4
ServiceAccountTokenProjection = audience expirationSeconds path
ClusterTrustBundleProjection = name signerName labelSelector path optional
PodCertificateProjection = signerName keyType maxExpirationSeconds credentialBundlePath keyPath
    certificateChainPath userAnnotations
VolumeProjection = secret downwardAPI configMap serviceAccountToken clusterTrustBundle
    podCertificate
ProjectedVolumeSource = sources defaultMode
PortworxVolumeSource = volumeID fsType readOnly
ScaleIOVolumeSource = gateway system secretRef sslEnabled protectionDomain storagePool storageMode
    volumeName fsType readOnly
StorageOSVolumeSource = volumeName volumeNamespace fsType readOnly secretRef
CSIVolumeSource = driver readOnly fsType volumeAttributes nodePublishSecretRef
VolumeResourceRequirements = limits requests
TypedLocalObjectReference = apiGroup kind name
TypedObjectReference = apiGroup kind name namespace
PersistentVolumeClaimSpec = accessModes resources volumeName selector storageClassName volumeMode
    dataSource dataSourceRef volumeAttributesClassName
PersistentVolumeClaimTemplate = metadata spec
EphemeralVolumeSource = volumeClaimTemplate
ImageVolumeSource = reference pullPolicy
Volume = name >VolumeSource
VolumeSource = hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi
    glusterfs persistentVolumeClaim rbd flexVolume cinder cephfs flocker downwardAPI fc azureFile
    configMap vsphereVolume quobyte azureDisk photonPersistentDisk portworxVolume scaleIO projected
    storageos csi ephemeral image
Taint = key value effect timeAdded
ConfigMapNodeConfigSource = namespace name uid resourceVersion kubeletConfigKey
NodeConfigSource = configMap=2
NodeSpec = podCIDR externalID providerID unschedulable taints configSource podCIDRs
NodeCondition = type status lastHeartbeatTime lastTransitionTime reason message
NodeAddress = type address
DaemonEndpoint = Port
NodeDaemonEndpoints = kubeletEndpoint
NodeSwapStatus = capacity
NodeSystemInfo = machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion
    kubeletVersion kubeProxyVersion operatingSystem architecture swap
ContainerImage = names sizeBytes
AttachedVolume = name devicePath
NodeConfigStatus = assigned active lastKnownGood error
NodeRuntimeHandlerFeatures = recursiveReadOnlyMounts userNamespaces
NodeRuntimeHandler = name features
NodeFeatures = supplementalGroupsPolicy
NodeStatus = capacity allocatable phase conditions addresses daemonEndpoints nodeInfo images
    volumesInUse volumesAttached config runtimeHandlers features declaredFeatures
Node = metadata spec status
NamespaceSpec = finalizers
NamespaceCondition = type status lastTransitionTime=4 reason message
NamespaceStatus = phase conditions
Namespace = metadata spec status
ObjectReference = kind namespace name uid apiVersion resourceVersion fieldPath
ServiceAccount = metadata secrets imagePullSecrets automountServiceAccountToken
Secret = metadata data type stringData immutable
ConfigMap = metadata data binaryData immutable
EventSource = component host
EventSeries = count lastObservedTime
Event = metadata involvedObject reason message source firstTimestamp lastTimestamp count type
    eventTime series action related reportingComponent reportingInstance
Binding = metadata target
LeaseSpec = holderIdentity leaseDurationSeconds acquireTime renewTime leaseTransitions strategy
    preferredHolder
Lease = metadata spec
Overhead = podFixed
Scheduling = nodeSelector tolerations
RuntimeClass = metadata handler overhead scheduling
PolicyRule = verbs apiGroups resources resourceNames nonResourceURLs
Role = metadata rules
Subject = kind apiGroup name namespace
RoleRef = apiGroup kind name
RoleBinding = metadata subjects roleRef
AggregationRule = clusterRoleSelectors
ClusterRole = metadata rules aggregationRule
ClusterRoleBinding = metadata subjects roleRef
CertificateSigningRequestSpec = request username uid groups usages extra signerName
    expirationSeconds
CertificateSigningRequestCondition = type reason message lastUpdateTime lastTransitionTime status
CertificateSigningRequestStatus = conditions certificate
CertificateSigningRequest = metadata spec status
TokenReviewSpec = token audiences
UserInfo = username uid groups extra
TokenReviewStatus = authenticated user error audiences
TokenReview = metadata spec status
BoundObjectReference = kind apiVersion name uid
TokenRequestSpec = audiences boundObjectRef=3 expirationSeconds
TokenRequestStatus = token expirationTimestamp
TokenRequest = metadata spec status
SelfSubjectReviewStatus = userInfo
SelfSubjectReview = metadata status
FieldSelectorRequirement = key operator values
FieldSelectorAttributes = rawSelector requirements
LabelSelectorAttributes = rawSelector requirements
ResourceAttributes = namespace verb group version resource subresource name fieldSelector
    labelSelector
NonResourceAttributes = path verb
SubjectAccessReviewSpec = resourceAttributes nonResourceAttributes user groups extra uid
SubjectAccessReviewStatus = allowed reason evaluationError denied
SubjectAccessReview = metadata spec status
SelfSubjectAccessReviewSpec = resourceAttributes nonResourceAttributes
SelfSubjectAccessReview = metadata spec status
SelfSubjectRulesReviewSpec = namespace
ResourceRule = verbs apiGroups resources resourceNames
NonResourceRule = verbs nonResourceURLs
SubjectRulesReviewStatus = resourceRules nonResourceRules incomplete evaluationError
SelfSubjectRulesReview = metadata spec status
Preconditions = uid resourceVersion
DeleteOptions = gracePeriodSeconds preconditions orphanDependents propagationPolicy dryRun
    ignoreStoreReadErrorWithClusterBreakingPotential
Eviction = metadata deleteOptions
CustomResourceDefinitionNames = plural singular shortNames kind listKind categories
CustomResourceValidation = openAPIV3Schema
CustomResourceSubresourceStatus =
CustomResourceSubresourceScale = specReplicasPath statusReplicasPath labelSelectorPath
CustomResourceSubresources = status scale
CustomResourceColumnDefinition = name type format description priority jsonPath
SelectableField = jsonPath
CustomResourceDefinitionVersion = name served storage schema subresources additionalPrinterColumns
    deprecated deprecationWarning selectableFields
ServiceReference = namespace name path port
WebhookClientConfig = service caBundle url
WebhookConversion = clientConfig=2 conversionReviewVersions
CustomResourceConversion = strategy webhook
CustomResourceDefinitionSpec = group names=3 scope versions=7 conversion=9 preserveUnknownFields
CustomResourceDefinitionCondition = type status lastTransitionTime reason message observedGeneration
CustomResourceDefinitionStatus = conditions acceptedNames storedVersions observedGeneration
CustomResourceDefinition = metadata spec status
ListMeta = selfLink resourceVersion continue remainingItemCount shardInfo
StatusCause = reason message field
StatusDetails = name group kind causes retryAfterSeconds uid
Status = metadata status message reason details code
PartialObjectMetadata = metadata
ScaleSpec = replicas
ScaleStatus = replicas selector
Scale = metadata spec status
ExternalDocumentation = description url
ValidationRule = rule message messageExpression reason fieldPath optionalOldSelf
JSONSchemaProps = id $schema $ref description type format title default maximum exclusiveMaximum
    minimum exclusiveMinimum maxLength minLength pattern maxItems minItems uniqueItems multipleOf
    enum maxProperties minProperties required items allOf oneOf anyOf not properties
    additionalProperties patternProperties dependencies additionalItems definitions externalDocs
    example nullable x-kubernetes-preserve-unknown-fields x-kubernetes-embedded-resource
    x-kubernetes-int-or-string x-kubernetes-list-map-keys x-kubernetes-list-type
    x-kubernetes-map-type x-kubernetes-validations
"""
