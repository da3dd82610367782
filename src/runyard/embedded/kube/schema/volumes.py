"""What a Pod can mount: members of each type, in `schema.model`'s notation."""

VOLUMES = """
HostPathVolumeSource = path:s! type:*s
EmptyDirVolumeSource = medium sizeLimit:*q
GCEPersistentDiskVolumeSource = pdName:s! fsType partition:i readOnly:b
AWSElasticBlockStoreVolumeSource = volumeID:s! fsType partition:i readOnly:b
GitRepoVolumeSource = repository:s! revision directory
KeyToPath = key:s! path:s! mode:*i
SecretVolumeSource = secretName items:[KeyToPath] defaultMode:*i optional:*b
NFSVolumeSource = server:s! path:s! readOnly:b
LocalObjectReference@ = name
ISCSIVolumeSource = targetPortal:s! iqn:s! lun:i! iscsiInterface fsType readOnly:b portals:[s]
    chapAuthDiscovery:b chapAuthSession:b secretRef:*LocalObjectReference initiatorName:*s
GlusterfsVolumeSource = endpoints:s! path:s! readOnly:b
PersistentVolumeClaimVolumeSource = claimName:s! readOnly:b
RBDVolumeSource = monitors:[s]! image:s! fsType pool user keyring secretRef:*LocalObjectReference
    readOnly:b
FlexVolumeSource = driver:s! fsType secretRef:*LocalObjectReference readOnly:b options:{s}
CinderVolumeSource = volumeID:s! fsType readOnly:b secretRef:*LocalObjectReference
CephFSVolumeSource = monitors:[s]! path user secretFile secretRef:*LocalObjectReference readOnly:b
FlockerVolumeSource = datasetName datasetUUID
ObjectFieldSelector@ = apiVersion fieldPath:s!
ResourceFieldSelector@ = containerName resource:s! divisor:q
DownwardAPIVolumeFile = path:s! fieldRef:*ObjectFieldSelector
    resourceFieldRef:*ResourceFieldSelector mode:*i
DownwardAPIVolumeSource = items:[DownwardAPIVolumeFile] defaultMode:*i
FCVolumeSource = targetWWNs:[s] lun:*i fsType readOnly:b wwids:[s]
AzureFileVolumeSource = secretName:s! shareName:s! readOnly:b
ConfigMapVolumeSource = name items:[KeyToPath] defaultMode:*i optional:*b
VsphereVirtualDiskVolumeSource = volumePath:s! fsType storagePolicyName storagePolicyID
QuobyteVolumeSource = registry:s! volume:s! readOnly:b user group tenant
AzureDiskVolumeSource = diskName:s! diskURI:s! cachingMode:*s fsType:*s readOnly:*b kind:*s
PhotonPersistentDiskVolumeSource = pdID:s! fsType
SecretProjection = name items:[KeyToPath] optional:*b
DownwardAPIProjection = items:[DownwardAPIVolumeFile]
ConfigMapProjection = name items:[KeyToPath] optional:*b
ServiceAccountTokenProjection = audience expirationSeconds:*l path:s!
ClusterTrustBundleProjection = name:*s signerName:*s labelSelector:*LabelSelector optional:*b
    path:s!
PodCertificateProjection = signerName keyType maxExpirationSeconds:*i credentialBundlePath keyPath
    certificateChainPath userAnnotations:{s}
VolumeProjection = secret:*SecretProjection downwardAPI:*DownwardAPIProjection
    configMap:*ConfigMapProjection serviceAccountToken:*ServiceAccountTokenProjection
    clusterTrustBundle:*ClusterTrustBundleProjection podCertificate:*PodCertificateProjection
ProjectedVolumeSource = sources:[VolumeProjection]! defaultMode:*i
PortworxVolumeSource = volumeID:s! fsType readOnly:b
ScaleIOVolumeSource = gateway:s! system:s! secretRef:*LocalObjectReference sslEnabled:b
    protectionDomain storagePool storageMode volumeName fsType readOnly:b
StorageOSVolumeSource = volumeName volumeNamespace fsType readOnly:b secretRef:*LocalObjectReference
CSIVolumeSource = driver:s! readOnly:*b fsType:*s volumeAttributes:{s}
    nodePublishSecretRef:*LocalObjectReference
VolumeResourceRequirements = limits:{q} requests:{q}
TypedLocalObjectReference@ = apiGroup:*s kind:s! name:s!
TypedObjectReference = apiGroup:*s kind:s! name:s! namespace:*s
PersistentVolumeClaimSpec = accessModes:[s] selector:*LabelSelector
    resources:VolumeResourceRequirements volumeName storageClassName:*s volumeMode:*s
    dataSource:*TypedLocalObjectReference dataSourceRef:*TypedObjectReference
    volumeAttributesClassName:*s
PersistentVolumeClaimTemplate = metadata:ObjectMeta spec:PersistentVolumeClaimSpec
EphemeralVolumeSource = volumeClaimTemplate:*PersistentVolumeClaimTemplate
ImageVolumeSource = reference pullPolicy
Volume = name:s! hostPath:*HostPathVolumeSource emptyDir:*EmptyDirVolumeSource
    gcePersistentDisk:*GCEPersistentDiskVolumeSource
    awsElasticBlockStore:*AWSElasticBlockStoreVolumeSource gitRepo:*GitRepoVolumeSource
    secret:*SecretVolumeSource nfs:*NFSVolumeSource iscsi:*ISCSIVolumeSource
    glusterfs:*GlusterfsVolumeSource persistentVolumeClaim:*PersistentVolumeClaimVolumeSource
    rbd:*RBDVolumeSource flexVolume:*FlexVolumeSource cinder:*CinderVolumeSource
    cephfs:*CephFSVolumeSource flocker:*FlockerVolumeSource downwardAPI:*DownwardAPIVolumeSource
    fc:*FCVolumeSource azureFile:*AzureFileVolumeSource configMap:*ConfigMapVolumeSource
    vsphereVolume:*VsphereVirtualDiskVolumeSource quobyte:*QuobyteVolumeSource
    azureDisk:*AzureDiskVolumeSource photonPersistentDisk:*PhotonPersistentDiskVolumeSource
    projected:*ProjectedVolumeSource portworxVolume:*PortworxVolumeSource
    scaleIO:*ScaleIOVolumeSource storageos:*StorageOSVolumeSource csi:*CSIVolumeSource
    ephemeral:*EphemeralVolumeSource image:*ImageVolumeSource
"""
