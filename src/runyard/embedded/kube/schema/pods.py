"""Pods and the metadata of every object: members of each type, in `schema.model`'s notation."""

PODS = """
OwnerReference@ = apiVersion:s! kind:s! name:s! uid:s! controller:*b blockOwnerDeletion:*b
ManagedFieldsEntry = manager operation apiVersion time:*t fieldsType fieldsV1:*any subresource
ObjectMeta = name generateName namespace selfLink uid resourceVersion generation:l
    creationTimestamp:t^ deletionTimestamp:*t deletionGracePeriodSeconds:*l labels:{s}
    annotations:{s} ownerReferences:[OwnerReference|uid] finalizers:[s=]+
    managedFields:[ManagedFieldsEntry]
LabelSelectorRequirement = key:s! operator:s! values:[s]
LabelSelector@ = matchLabels:{s} matchExpressions:[LabelSelectorRequirement]
ContainerPort = name hostPort:i containerPort:i! protocol hostIP
ConfigMapEnvSource = name optional:*b
SecretEnvSource = name optional:*b
EnvFromSource = prefix configMapRef:*ConfigMapEnvSource secretRef:*SecretEnvSource
ConfigMapKeySelector@ = name key:s! optional:*b
SecretKeySelector@ = name key:s! optional:*b
FileKeySelector@ = volumeName:s! path:s! key:s! optional:*b
EnvVarSource = fieldRef:*ObjectFieldSelector resourceFieldRef:*ResourceFieldSelector
    configMapKeyRef:*ConfigMapKeySelector secretKeyRef:*SecretKeySelector
    fileKeyRef:*FileKeySelector
EnvVar = name:s! value valueFrom:*EnvVarSource
ResourceClaim = name:s! request
ResourceRequirements = limits:{q} requests:{q} claims:[ResourceClaim|name]-
ContainerResizePolicy = resourceName:s! restartPolicy:s!
ContainerRestartRuleOnExitCodes = operator values:[i=]
ContainerRestartRule = action exitCodes:*ContainerRestartRuleOnExitCodes
VolumeMount = name:s! readOnly:b recursiveReadOnly:*s mountPath:s! subPath mountPropagation:*s
    subPathExpr
VolumeDevice = name:s! devicePath:s!
ExecAction = command:[s]
HTTPHeader = name:s! value:s!
HTTPGetAction = path port:o! host scheme httpHeaders:[HTTPHeader]
TCPSocketAction = port:o! host
GRPCAction = port:i! service:*s
Probe = exec:*ExecAction httpGet:*HTTPGetAction tcpSocket:*TCPSocketAction grpc:*GRPCAction
    initialDelaySeconds:i timeoutSeconds:i periodSeconds:i successThreshold:i failureThreshold:i
    terminationGracePeriodSeconds:*l
SleepAction = seconds:l!
LifecycleHandler = exec:*ExecAction httpGet:*HTTPGetAction tcpSocket:*TCPSocketAction
    sleep:*SleepAction
Lifecycle = postStart:*LifecycleHandler preStop:*LifecycleHandler stopSignal:*s
Capabilities = add:[s] drop:[s]
SELinuxOptions = user role type level
WindowsSecurityContextOptions = gmsaCredentialSpecName:*s gmsaCredentialSpec:*s runAsUserName:*s
    hostProcess:*b
SeccompProfile = type:s! localhostProfile:*s
AppArmorProfile = type:s! localhostProfile:*s
SecurityContext = capabilities:*Capabilities privileged:*b seLinuxOptions:*SELinuxOptions
    windowsOptions:*WindowsSecurityContextOptions runAsUser:*l runAsGroup:*l runAsNonRoot:*b
    readOnlyRootFilesystem:*b allowPrivilegeEscalation:*b procMount:*s
    seccompProfile:*SeccompProfile appArmorProfile:*AppArmorProfile
Container = name:s! image command:[s] args:[s] workingDir
    ports:[ContainerPort|containerPort,protocol] envFrom:[EnvFromSource] env:[EnvVar|name]
    resources:ResourceRequirements resizePolicy:[ContainerResizePolicy] restartPolicy:*s
    restartPolicyRules:[ContainerRestartRule] volumeMounts:[VolumeMount|mountPath]
    volumeDevices:[VolumeDevice|devicePath] livenessProbe:*Probe readinessProbe:*Probe
    startupProbe:*Probe lifecycle:*Lifecycle terminationMessagePath terminationMessagePolicy
    imagePullPolicy securityContext:*SecurityContext stdin:b stdinOnce:b tty:b
EphemeralContainer = name:s! image command:[s] args:[s] workingDir
    ports:[ContainerPort|containerPort,protocol] envFrom:[EnvFromSource] env:[EnvVar|name]
    resources:ResourceRequirements resizePolicy:[ContainerResizePolicy] restartPolicy:*s
    restartPolicyRules:[ContainerRestartRule] volumeMounts:[VolumeMount|mountPath]
    volumeDevices:[VolumeDevice|devicePath] livenessProbe:*Probe readinessProbe:*Probe
    startupProbe:*Probe lifecycle:*Lifecycle terminationMessagePath terminationMessagePolicy
    imagePullPolicy securityContext:*SecurityContext stdin:b stdinOnce:b tty:b targetContainerName
Sysctl = name:s! value:s!
PodSecurityContext = seLinuxOptions:*SELinuxOptions windowsOptions:*WindowsSecurityContextOptions
    runAsUser:*l runAsGroup:*l runAsNonRoot:*b supplementalGroups:[l] supplementalGroupsPolicy:*s
    fsGroup:*l sysctls:[Sysctl] fsGroupChangePolicy:*s seccompProfile:*SeccompProfile
    appArmorProfile:*AppArmorProfile seLinuxChangePolicy:*s
NodeSelectorRequirement = key:s! operator:s! values:[s]
NodeSelectorTerm@ = matchExpressions:[NodeSelectorRequirement] matchFields:[NodeSelectorRequirement]
NodeSelector@ = nodeSelectorTerms:[NodeSelectorTerm]!
PreferredSchedulingTerm = weight:i! preference:NodeSelectorTerm
NodeAffinity = requiredDuringSchedulingIgnoredDuringExecution:*NodeSelector
    preferredDuringSchedulingIgnoredDuringExecution:[PreferredSchedulingTerm]
PodAffinityTerm = labelSelector:*LabelSelector namespaces:[s] topologyKey:s!
    namespaceSelector:*LabelSelector matchLabelKeys:[s] mismatchLabelKeys:[s]
WeightedPodAffinityTerm = weight:i! podAffinityTerm:PodAffinityTerm
PodAffinity = requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
    preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
PodAntiAffinity = requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
    preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
Affinity = nodeAffinity:*NodeAffinity podAffinity:*PodAffinity podAntiAffinity:*PodAntiAffinity
Toleration = key operator value effect tolerationSeconds:*l
HostAlias = ip:s! hostnames:[s]
PodDNSConfigOption = name value:*s
PodDNSConfig = nameservers:[s] searches:[s] options:[PodDNSConfigOption]
PodReadinessGate = conditionType:s!
TopologySpreadConstraint = maxSkew:i! topologyKey:s! whenUnsatisfiable:s!
    labelSelector:*LabelSelector minDomains:*i nodeAffinityPolicy:*s nodeTaintsPolicy:*s
    matchLabelKeys:[s]
PodOS = name:s!
PodSchedulingGate = name:s!
PodResourceClaim = name:s! resourceClaimName:*s resourceClaimTemplateName:*s
PodSchedulingGroup = podGroupName:*s
PodSpec = volumes:[Volume|name]~ initContainers:[Container|name] containers:[Container|name]!
    ephemeralContainers:[EphemeralContainer|name] restartPolicy terminationGracePeriodSeconds:*l
    activeDeadlineSeconds:*l dnsPolicy nodeSelector:{s}@ serviceAccountName serviceAccount
    automountServiceAccountToken:*b nodeName hostNetwork:b hostPID:b hostIPC:b
    shareProcessNamespace:*b securityContext:*PodSecurityContext
    imagePullSecrets:[LocalObjectReference|name] hostname subdomain affinity:*Affinity schedulerName
    tolerations:[Toleration] hostAliases:[HostAlias|ip] priorityClassName priority:*i
    dnsConfig:*PodDNSConfig readinessGates:[PodReadinessGate] runtimeClassName:*s
    enableServiceLinks:*b preemptionPolicy:*s overhead:{q}
    topologySpreadConstraints:[TopologySpreadConstraint|topologyKey,whenUnsatisfiable]
    setHostnameAsFQDN:*b os:*PodOS hostUsers:*b schedulingGates:[PodSchedulingGate|name]
    resourceClaims:[PodResourceClaim|name]~ resources:*ResourceRequirements hostnameOverride:*s
    schedulingGroup:*PodSchedulingGroup
PodCondition = type:s! observedGeneration:l status:s! lastProbeTime:t lastTransitionTime:t reason
    message
HostIP = ip:s!
PodIP = ip:s!
ContainerStateWaiting = reason message
ContainerStateRunning = startedAt:t
ContainerStateTerminated = exitCode:i! signal:i reason message startedAt:t finishedAt:t containerID
ContainerState = waiting:*ContainerStateWaiting running:*ContainerStateRunning
    terminated:*ContainerStateTerminated
ImageVolumeStatus = imageRef
VolumeStatus = image:*ImageVolumeStatus
VolumeMountStatus = name:s! mountPath:s! readOnly:b recursiveReadOnly:*s volumeStatus:*VolumeStatus
LinuxContainerUser = uid:l! gid:l! supplementalGroups:[l]
ContainerUser = linux:*LinuxContainerUser
ResourceHealth = resourceID:s! health message:*s
ResourceStatus = name:s! resources:[ResourceHealth|resourceID]-
ContainerStatus = name:s! state:ContainerState lastState:ContainerState ready:b! restartCount:i!
    image:s! imageID:s! containerID started:*b allocatedResources:{q}
    resources:*ResourceRequirements volumeMounts:[VolumeMountStatus|mountPath] user:*ContainerUser
    allocatedResourcesStatus:[ResourceStatus|name] stopSignal:*s
PodResourceClaimStatus = name:s! resourceClaimName:*s
ContainerExtendedResourceRequest = containerName:s! resourceName:s! requestName:s!
PodExtendedResourceClaimStatus = requestMappings:[ContainerExtendedResourceRequest]!
    resourceClaimName:s!
NodeAllocatableResourceClaimStatus = resourceClaimName:s! containers:[s=] resources:{q}!
PodStatus = observedGeneration:l phase conditions:[PodCondition|type] message reason
    nominatedNodeName hostIP hostIPs:[HostIP]+ip podIP podIPs:[PodIP|ip] startTime:*t
    initContainerStatuses:[ContainerStatus] containerStatuses:[ContainerStatus] qosClass
    ephemeralContainerStatuses:[ContainerStatus] resize
    resourceClaimStatuses:[PodResourceClaimStatus|name]~
    extendedResourceClaimStatus:*PodExtendedResourceClaimStatus allocatedResources:{q}
    resources:*ResourceRequirements
    nodeAllocatableResourceClaimStatuses:[NodeAllocatableResourceClaimStatus]
Pod = kind apiVersion metadata:ObjectMeta spec:PodSpec status:PodStatus
"""
